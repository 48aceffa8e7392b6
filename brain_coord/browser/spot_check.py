"""One hop of a running answer, looked at again on another tab that holds the same layers.

What a tab shows when it joins it need not do later. So of some answers the activations that went into one hop are kept, and
at some token another holder makes the same of them from the start: for the tab that is asked that is the beginning of any
answer, and the one that is checked does not hear of it.
"""

from dataclasses import dataclass, field
from random import Random, SystemRandom
from typing import Any, Final

import numpy as np

from brain_coord.browser.agreement import Numbers, Question
from brain_coord.browser.models import BrowserModel, Stage
from brain_coord.browser.stage_work import Floats
from brain_coord.browser.tab import Tab

SHARE: Final = 0.05
"""Of the answers of tabs that are known."""

CLOSER_SHARE: Final = 0.25
"""Of those in which a tab has a part that is new, or was in doubt."""

NEW_OUTCOMES: Final = 20
WITHIN_TOKENS: Final = 32
"""The check is at one of the first so many tokens, or at the answer's end."""

MOST_POSITIONS: Final = 512
"""Longer answers are not checked beyond this: the other tab has to make all of it."""

CHANCE: Final[Random] = SystemRandom()


@dataclass(slots=True)
class SpotCheck:
    """What is kept of one hop until it is time."""

    model: BrowserModel
    tab: Tab
    session: str | None
    stages: tuple[Stage, ...]
    at_token: int
    made: int = 0
    """Tokens of the answer so far."""
    positions: int = 0
    result: Numbers | None = None
    story: dict[str, Any] | None = None
    """What came of it, for the receipt."""
    _inputs: list[Floats] = field(default_factory=list)

    @property
    def due(self) -> bool:
        """Whether it is time."""
        return self.result is not None and self.made >= self.at_token

    def saw(self, hidden: Floats, result: Numbers | None) -> bool:
        """Activations went through the hop; `False` when the answer became too long to be checked."""
        self.positions += len(hidden)
        if self.positions > MOST_POSITIONS:
            self._inputs.clear()
            return False
        self._inputs.append(hidden)
        if result is not None:
            self.result = result
            self.made += 1
        return True

    def question(self) -> Question:
        """The same for another tab."""
        return Question(self.model, self.stages, np.concatenate(self._inputs), last_only=True)


def wanted(tab: Tab, chance: Random = CHANCE) -> bool:
    """Whether an answer is to be checked at this tab."""
    new = len(tab.standing.done) < NEW_OUTCOMES or tab.strikes.count > 0
    return chance.random() < (CLOSER_SHARE if new else SHARE)
