"""EXTERNAL_MODEL: OpenAI-compatible services of third parties."""

from collections.abc import Callable

from brain_coord.classes.upstream_class import MakeTarget, UpstreamClass
from brain_coord.routing.vocabulary import ResourceClass


def external_class(make_target: MakeTarget, on_capacity: Callable[[], None]) -> UpstreamClass:
    """The class without any upstream yet."""
    return UpstreamClass(ResourceClass.EXTERNAL_MODEL, make_target, on_capacity=on_capacity)
