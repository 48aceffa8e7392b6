"""One launched engine as the agent uses it: its supervisor, its places for jobs, and the words about it."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, Literal

from brain_node.agent.source import one_line
from brain_node.agent.token_rate import TokenRate
from brain_node.contract.messages import EngineClaim
from brain_node.engine.environments import EngineEnv, Flavour
from brain_node.engine.fetch import FetchWeights
from brain_node.engine.job import EngineJob
from brain_node.engine.spec import EngineSpec, vllm_program
from brain_node.engine.states import State
from brain_node.engine.supervisor import EngineSupervisor
from brain_node.engine.surroundings import Surroundings
from brain_node.engine.view import WAITS, EngineView
from brain_node.plan.records import Placement
from brain_node.relay.lease import Endpoint, Outcome

ClaimedState = Literal["downloading", "starting", "ready", "stalled", "stopping", "failed", "backing_off"]
CLAIMED: Final[dict[State, ClaimedState]] = {
    State.DOWNLOADING: "downloading",
    State.STARTING: "starting",
    State.READY: "ready",
    State.STALLED: "stalled",
    State.STOPPING: "stopping",
    State.STOPPED: "stopping",
    State.BACKING_OFF: "backing_off",
    State.FAILED: "failed",
}
"""An engine's states in the words of the protocol."""


def spec_of(placement: Placement, env: EngineEnv, folder: Path) -> EngineSpec:
    """What to launch for a placement, with the weights in a folder."""
    on_cpu = placement.device == "cpu"
    return EngineSpec(
        model_id=placement.model.id,
        model_path=folder,
        program=vllm_program(env),
        flavour=Flavour.CPU if on_cpu else Flavour.CUDA,
        args=placement.args,
        context=placement.max_model_len,
        max_seqs=placement.slots,
        tensor_parallel=placement.tensor_parallel,
        memory_fraction=placement.gpu_memory_utilization,
        kv_cache_bytes=placement.kv_cache_bytes,
        visible_devices=None if on_cpu else placement.gpu_uuids,
        eager=on_cpu,
        replica=placement.replica,
    )


class LaunchedEngine:
    """One engine of the plan.

    Args:
        placement: what it is and where it runs.
        spec: what is launched.
        surroundings: what this agent's engines share.
        fetch: how its weights come, when they are not on the disk.
        release_check: what may keep it from starting again.
        may_launch: whether it is its turn to start.
        changed: called when what can be offered changed, or the words about it.
    """

    def __init__(
        self,
        placement: Placement,
        spec: EngineSpec,
        surroundings: Surroundings,
        fetch: FetchWeights | None,
        release_check: Callable[[], Awaitable[str | None]],
        may_launch: Callable[[], bool],
        changed: Callable[[], None],
    ) -> None:
        self.placement = placement
        self.supervisor = EngineSupervisor(spec, surroundings, fetch, release_check, may_launch)
        self.active = 0
        self.lost: str | None = None
        """Why its card cannot be used; the engine is stopped until the card is back."""
        self.rate = TokenRate()
        self._changed = changed
        self._view = self.supervisor.view()
        self._shown: tuple[object, ...] = ()
        self._endpoint: Endpoint | None = None
        """Of the process that runs now: each has a port and a key of its own."""
        self.supervisor.subscribe(self._viewed)

    @property
    def model_id(self) -> str:
        """The catalog's name."""
        return self.placement.model.id

    @property
    def ready(self) -> bool:
        """Whether it takes jobs; from the last view, so that asking costs nothing."""
        return self.lost is None and self._view.ready

    @property
    def context(self) -> int | None:
        """Tokens it was really started with."""
        return self._view.context

    @property
    def base_url(self) -> str | None:
        """Where it listens, while it is ready."""
        return self._view.base_url if self.ready else None

    @property
    def pid(self) -> int | None:
        """Its root process."""
        return self._view.pid

    def lease(self) -> "EngineLease | None":
        """A place for one job, or `None` when it has none now."""
        if not self.ready or self.active >= self.placement.slots or self._view.base_url is None:
            return None
        job = self.supervisor.job()
        if job is None:
            return None
        self.active += 1
        endpoint, url, key = self._endpoint, self._view.base_url, self.supervisor.api_key
        if endpoint is None or endpoint.base_url != url or endpoint.api_key != key:
            self._endpoint = endpoint = Endpoint(url, key, self.model_id)
        return EngineLease(self, endpoint, job)

    def claim(self) -> EngineClaim:
        """Its state for heartbeats."""
        view = self.supervisor.view()
        if self.lost is not None:
            return EngineClaim(model=self.model_id, state="failed", cause=one_line(self.lost))
        if view.waits:
            return EngineClaim(model=self.model_id, state="starting", cause=WAITS)
        cause = view.cause.message if view.cause and not view.ready else None
        return EngineClaim(
            model=self.model_id,
            state=CLAIMED[view.state],
            elapsed_s=round(view.elapsed_s, 1),
            cause=one_line(cause) if cause else None,
            progress=view.progress.fraction if view.progress else None,
        )

    def details(self) -> dict[str, Any]:
        """Everything about it, for `status`."""
        view = self.supervisor.view()
        place = "CPU" if self.placement.device == "cpu" else [f"GPU {index}" for index in self.placement.gpu_indices]
        shown = view.as_json()
        if self.lost is not None:
            shown["sentence"] = f"{self.lost}; it starts by itself once that is over"
        more = {"lost": self.lost, "runs_on": place, "slots": self.placement.slots, "tokens_s": self.rate.tokens_s}
        return {**shown, **more}

    def _viewed(self, view: EngineView) -> None:
        self._view = view
        shown = (view.state, view.waits, view.context, view.base_url, view.cause.kind if view.cause else None)
        if shown != self._shown:
            self._shown = shown
            self._changed()


class EngineLease:
    """One job's hold on an engine."""

    __slots__ = ("_engine", "_job", "endpoint", "progress")

    def __init__(self, engine: LaunchedEngine, endpoint: Endpoint, job: EngineJob) -> None:
        self.endpoint = endpoint
        self._engine = engine
        self._job = job
        self.progress = job.progress

    def finished(self, outcome: Outcome) -> None:
        """Give the place back, and tell the supervisor whether the engine did what it should."""
        self._engine.active -= 1
        # A caller who left without having seen anything may have left because the engine hangs.
        self._job.finished(ok=outcome == "ok" or (outcome == "cancelled" and self._job.progressed))
