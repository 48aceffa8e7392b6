"""Privacy is a filter, not a weight: which classes may see a request, and when asking for it is a contradiction."""

from collections.abc import Iterable

from brain_coord.routing.inputs import ClassRequest, ClassState
from brain_coord.routing.vocabulary import Privacy, ResourceClass
from brain_coord.routing.weights import ALLOWED_TRUST, TRUST_OF


def default_privacy(*, names_node_model: bool) -> Privacy:
    """The level of a request that names none: PUBLIC for a Brain Node model, STANDARD for all else."""
    return Privacy.PUBLIC if names_node_model else Privacy.STANDARD


def privacy_of(request: ClassRequest) -> Privacy:
    """The level that holds for a request: its own, else the default."""
    return request.privacy or default_privacy(names_node_model=request.names_node_model)


def may_see(resource_class: ResourceClass, privacy: Privacy, *, carries_plaintext: bool = True) -> bool:
    """Whether a class may be given a request of this level. Work without plaintext may go anywhere."""
    return not carries_plaintext or TRUST_OF[resource_class] in ALLOWED_TRUST[privacy]


def is_privacy_conflict(request: ClassRequest, classes: Iterable[ClassState]) -> bool:
    """Whether a node model was asked for at a level that no class serving it may see.

    This is the client's contradiction (`400 privacy_conflict`), not a lack of capacity: waiting would not help. A class
    that serves the model and may see it, but is not available right now, makes it a lack of capacity.
    """
    if not (request.names_node_model and request.carries_plaintext):
        return False
    privacy = privacy_of(request)
    if privacy is Privacy.PUBLIC:
        return False
    return not any(state.supported and may_see(state.resource_class, privacy) for state in classes)
