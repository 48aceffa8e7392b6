"""The forms in which engines write their events, kept from stream to stream: the same bytes have the same meaning."""

import re
from typing import Final

from brain_coord.gateway.dialects.seen import FINISH, QUIET, Seen
from brain_coord.routing.bounded import Bounded

FORM_BYTES: Final = 512
"""Longest form that is kept."""

_NAMES_AND_MARKS: Final = re.compile(
    rb'(?:[{}\[\]:, \n]|null|true|false|[0-9]{1,2}(?![0-9])|"[a-z_]{1,24}"(?= ?:)'
    rb'|"(?:|assistant|stop|length|tool_calls|content_filter|function_call|abort|error)")*'
)
"""Of texts only those that every engine writes: what an answer stopped at may be a word of the client's."""

_SAYS_NO_MORE: Final = (QUIET, FINISH)


class Forms:
    """What was read of the events of one API form.

    An event begins with members that name the stream and say nothing of the answer. What stands behind them is one of a few
    forms, or one with a text in it. Nobody's text is kept: a form consists of names and marks.

    Attributes:
        start: the members at the start of an event; the group is what tells one engine's events from another's.
        plain_text: what stands before the text of an event that holds nothing else, up to its opening quote.
        counts: what stands behind the start of an event of token counts alone; its groups are those of prompt and answer.
    """

    def __init__(self, start: re.Pattern[bytes], plain_text: re.Pattern[bytes], counts: re.Pattern[bytes]) -> None:
        self.start = start
        self.plain_text = plain_text
        self.counts = counts
        self._meanings: Bounded[bytes, Seen] = Bounded()
        self._around_text: Bounded[bytes | None, tuple[bytes, bytes]] = Bounded()
        self.meaning = self._meanings.get
        """What an event without text means, by what stands behind its start."""
        self.around_text = self._around_text.get
        """The last form of an engine's events with text: what stands between their start and the text, and behind it."""

    def keep(self, behind_start: bytes, seen: Seen) -> None:
        """An event was read."""
        if seen in _SAYS_NO_MORE and _is_form(behind_start):
            self._meanings.keep(behind_start, seen)

    def keep_around_text(self, engine: bytes | None, before: bytes, behind: bytes) -> None:
        """An event with text was read."""
        if _is_form(before + behind):
            self._around_text.keep(engine, (before, behind))


def _is_form(data: bytes) -> bool:
    return len(data) <= FORM_BYTES and _NAMES_AND_MARKS.fullmatch(data) is not None
