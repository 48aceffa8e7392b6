"""EXTERNAL_MODEL: OpenAI-compatible services of third parties."""

from brain_coord.classes.upstream_class import MakeTarget, UpstreamClass
from brain_coord.routing.vocabulary import ResourceClass


def external_class(make_target: MakeTarget) -> UpstreamClass:
    """The class without any upstream yet."""
    return UpstreamClass(ResourceClass.EXTERNAL_MODEL, make_target)
