"""Who looks over the gateway's shoulder: told of decisions, and of the few whole answers that it asked to keep."""

from typing import Protocol

from brain_coord.classes.target import Target
from brain_coord.gateway.answer import Answer
from brain_coord.gateway.decide import Decision
from brain_coord.gateway.request import ApiRequest


class Watch(Protocol):
    """Counts tokens exactly, samples answers for a second opinion, counts why nodes were passed by."""

    def begins(self, request: ApiRequest, decision: Decision) -> bool:
        """A request was decided. Whether the bytes of its answer are to be kept until its end."""

    def ends(self, request: ApiRequest, decision: Decision, target: Target, answer: Answer) -> None:
        """The answer is whole, and `answer.kept` holds it; called before the receipt is made."""
