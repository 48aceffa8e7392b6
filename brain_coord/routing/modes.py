"""Which mode a request runs in, by its own words and the operator's COMMUNITY rule."""

from brain_coord.routing.inputs import ClassRequest
from brain_coord.routing.privacy import privacy_of
from brain_coord.routing.vocabulary import CommunityFirst, Mode, Plan, Privacy


def resolve_mode(request: ClassRequest, community_first: CommunityFirst) -> Mode:
    """The mode that holds: a PUBLIC request in AUTO becomes COMMUNITY where `BRAIN_COMMUNITY_FIRST` says so."""
    if request.mode is not Mode.AUTO or privacy_of(request) is not Privacy.PUBLIC:
        return request.mode
    if community_first is CommunityFirst.ALL:
        return Mode.COMMUNITY
    on_free_plan = community_first is CommunityFirst.FREE and request.plan is Plan.FREE
    return Mode.COMMUNITY if on_free_plan else Mode.AUTO
