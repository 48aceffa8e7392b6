"""A snapshot, the input of both routers as JSON, read into records with its faults named.

A snapshot may hold any of `request`, `community_first`, `classes`, `model`, `models` and `nodes`. With `classes` a class
can be decided, with `nodes` or a model a node.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from brain_coord.routing.inputs import AUTO_MODEL, ClassRequest, ClassState, ModelNeed, NodeRequest, NodeState
from brain_coord.routing.reading import Part, SnapshotError
from brain_coord.routing.vocabulary import Basis, CommunityFirst, Liveness, Mode, Plan, Privacy, ResourceClass
from brain_coord.routing.weights import UNTRIED_RELIABILITY


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What both routers are given; a part is `None` when the snapshot has nothing to decide there.

    Attributes:
        community_first: the operator's rule.
        class_request: the request as the class router sees it.
        classes: the classes to choose from.
        node_request: the request as the node router sees it.
        models: the model asked for, or the whole catalog for `brain/auto`.
        auto: whether the request leaves the model to the routers.
        nodes: the nodes to choose from.
        ignored: paths of members that a snapshot does not have.
    """

    community_first: CommunityFirst
    class_request: ClassRequest
    classes: tuple[ClassState, ...] | None
    node_request: NodeRequest
    models: tuple[ModelNeed, ...]
    auto: bool
    nodes: tuple[NodeState, ...] | None
    ignored: tuple[str, ...] = ()


def read_snapshot(value: Any, path: str = "$") -> Snapshot:
    """Read a snapshot from parsed JSON.

    Raises:
        SnapshotError: naming the JSON path of the first fault.
    """
    top = Part(value, path)
    read = [top]
    request = _kept(read, top.part("request"))
    community_first = top.choice("community_first", CommunityFirst) or CommunityFirst.FREE
    classes = tuple(_class_state(_kept(read, part)) for part in top.parts("classes"))
    nodes = tuple(_node_state(_kept(read, part)) for part in top.parts("nodes"))
    _refuse_repeated((state.resource_class for state in classes), top.at("classes"), "class")
    _refuse_repeated((state.node_id for state in nodes), top.at("nodes"), "node_id")
    asked = _asked(top, request, read)
    class_request = ClassRequest(
        mode=request.choice("mode", Mode) or Mode.AUTO,
        privacy=request.choice("privacy", Privacy),
        plan=request.choice("plan", Plan) or Plan.FREE,
        max_cost_usd=request.number("max_cost_usd"),
        max_latency_ms=request.number("max_latency_ms"),
        carries_plaintext=request.flag("carries_plaintext", default=True),
        names_node_model=request.flag("names_node_model", default=_is_node_model(asked, nodes)),
    )
    node_request = NodeRequest(
        region=request.text("region"),
        require_region=request.flag("require_region", default=False),
        max_ask_usd_per_1m=request.number("max_ask_usd_per_1m"),
        node=request.text("node"),
    )
    asks_for_node = any(name in top for name in ("nodes", "model", "models"))
    if asks_for_node and not (asked.models or asked.auto):
        raise SnapshotError(request.at("model"), "is required to choose a node")
    if not asks_for_node and "classes" not in top:
        raise SnapshotError(path, "has neither classes nor nodes, so there is nothing to decide")
    return Snapshot(
        community_first,
        class_request,
        classes if "classes" in top else None,
        node_request,
        asked.models,
        asked.auto,
        nodes if asks_for_node else None,
        tuple(name for part in read for name in part.unread()),
    )


def _kept(read: list[Part], part: Part) -> Part:
    read.append(part)
    return part


def _class_state(part: Part) -> ClassState:
    resource_class = part.choice("class", ResourceClass)
    if resource_class is None:
        raise SnapshotError(part.at("class"), "is required")
    return ClassState(
        resource_class=resource_class,
        supported=part.flag("supported", default=True),
        available=part.flag("available", default=True),
        cost_usd=part.number("cost_usd"),
        latency_ms=part.number("latency_ms"),
        reliability=part.number("reliability", at_most=1),
        quality=part.number("quality", at_most=1),
        confidence=part.count("confidence") or 0,
        mock=part.flag("mock", default=False),
    )


def _node_state(part: Part) -> NodeState:
    state = part.choice("state", Liveness)
    if state is None:
        raise SnapshotError(part.at("state"), "is required")
    reliability = part.number("reliability", at_most=100)
    return NodeState(
        node_id=part.required_text("node_id"),
        state=state,
        slots=part.required_count("slots"),
        active=part.count("active") or 0,
        queue=part.count("queue") or 0,
        serves=part.texts("serves"),
        loaded=part.texts("loaded"),
        reported_vram_mib=part.count("vram_mib"),
        tok_s=part.numbers("tok_s"),
        benchmark_tok_s=part.number("benchmark_tok_s"),
        basis=part.choice("basis", Basis) or Basis.UNMEASURED,
        rtt_ms=part.number("rtt_ms"),
        reliability=UNTRIED_RELIABILITY if reliability is None else reliability,
        region=part.text("region"),
        ask_usd_per_1m=part.number("ask_usd_per_1m"),
    )


class _Asked(NamedTuple):
    """What a snapshot says about the model: which to decide for, and how the request names it."""

    models: tuple[ModelNeed, ...]
    auto: bool = False
    in_catalog: bool = False


def _asked(top: Part, request: Part, read: list[Part]) -> _Asked:
    wanted = request.text("model")
    catalog = [_model_need(_kept(read, part)) for part in top.parts("models")]
    named = _model_need(_kept(read, top.part("model"))) if "model" in top else None
    if named is not None:
        if wanted not in (None, named.model_id, AUTO_MODEL):
            raise SnapshotError(f"{top.at('model')}.id", f"is {named.model_id}, but the request asks for {wanted}")
        if named.model_id not in (model.model_id for model in catalog):
            catalog.append(named)
    _refuse_repeated((model.model_id for model in catalog), top.at("models"), "id")
    if wanted == AUTO_MODEL:
        return _Asked(tuple(catalog), auto=True)
    wanted = wanted or (named.model_id if named is not None else None)
    if wanted is None:
        return _Asked(())
    described = tuple(model for model in catalog if model.model_id == wanted)
    # A model that the snapshot does not describe asks for no memory; whether anybody serves it is the nodes' word.
    return _Asked(described or (ModelNeed(wanted),), in_catalog=bool(described))


def _model_need(part: Part) -> ModelNeed:
    return ModelNeed(part.required_text("id"), part.count("min_vram_mib") or 0, part.flag("mock", default=False))


def _is_node_model(asked: _Asked, nodes: Iterable[NodeState]) -> bool:
    """Whether the request names a model of the Brain Nodes, as far as a snapshot can tell."""
    if asked.auto or not asked.models:
        return False
    return asked.in_catalog or any(asked.models[0].model_id in node.serves for node in nodes)


def _refuse_repeated(keys: Iterable[str], path: str, member: str) -> None:
    seen: set[str] = set()
    for index, key in enumerate(keys):
        if key in seen:
            raise SnapshotError(f"{path}[{index}].{member}", f"{key} stands there twice")
        seen.add(key)
