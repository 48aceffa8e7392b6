"""Launched engines as a source: what the plan places is started, kept, and taken out when its card is gone."""

import asyncio
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

import aiohttp
import structlog

from brain_node.agent.cards import held_reason, lost_reason
from brain_node.agent.hardware import Hardware
from brain_node.agent.source import Changed, one_line
from brain_node.agent.token_rate import generated_tokens
from brain_node.agent.vllm_engine import LaunchedEngine, spec_of
from brain_node.agent.weights import Weights
from brain_node.contract.catalog import Catalog
from brain_node.contract.limits import MAX_SLOTS
from brain_node.contract.messages import EngineClaim, Job, ModelOffer
from brain_node.engine import proc_table
from brain_node.engine.environments import EngineEnv, Flavour, find_environment
from brain_node.engine.orphans import end_orphans
from brain_node.engine.surroundings import Surroundings
from brain_node.exit_codes import UNAVAILABLE
from brain_node.gpu.machine import machine_of
from brain_node.plan.planner import plan
from brain_node.plan.records import AUTO, EngineDevice, Placement, Plan, PlanRequest, Refusal
from brain_node.relay.lease import Lease

log = structlog.get_logger(__name__)

WATCH_S: Final = 5.0
"""Period of looking whether cards were lost or came back."""
REPLAN_S: Final = 60.0
"""Period of trying again what did not fit, in case memory became free."""


class NothingToServeError(Exception):
    """No engine can run on this machine as it is."""

    exit_code = UNAVAILABLE

    def __init__(self, code: str, message: str, next_step: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.next_step = next_step


class VllmSource:
    """Engines that this agent launches and supervises.

    Args:
        catalog: the allowlist; nothing else is ever launched.
        request: what the operator wants served.
        engines: the folder with engine environments.
        weights: where weights come from.
        hardware: the machine.
        surroundings: what the engines share.
    """

    kind = "vllm"

    def __init__(
        self,
        catalog: Catalog,
        request: PlanRequest,
        engines: Path,
        weights: Weights,
        hardware: Hardware,
        surroundings: Surroundings,
    ) -> None:
        self._catalog = catalog
        self._request = request
        self._engines_dir = engines
        self._env: EngineEnv | None = None
        self._weights = weights
        self._hardware = hardware
        hardware.own_pids = self.own_pids
        self._around = surroundings
        self._changed: Changed = lambda: None
        self._tasks: set[asyncio.Task[None]] = set()
        self.engines: list[LaunchedEngine] = []
        self.refusals: tuple[Refusal, ...] = ()
        """Models that were asked for and do not run here, with the numbers."""

    @property
    def version(self) -> str | None:
        """Version of vLLM, once it is known which environment is used."""
        return self._env.version if self._env else None

    @property
    def uses_cards(self) -> bool:
        """Whether the engine in use is the one for cards."""
        return self._env is not None and self._env.flavour is Flavour.CUDA

    def own_pids(self) -> Collection[int]:
        """Every process of the engines; called on the thread that reads the cards."""
        roots = {engine.pid for engine in self.engines if engine.pid is not None}
        if not roots:
            return ()
        return {facts.pid for facts in proc_table.all_processes() if facts.session in roots}

    async def start(self, changed: Changed) -> None:
        """End what a killed agent left, plan, and bring the engines up one after the other where they share cards.

        Raises:
            NothingToServeError: nothing that was asked for runs on this machine as it is.
        """
        self._changed = changed
        for orphan in await asyncio.to_thread(end_orphans, self._around.run_dir):
            log.warning("orphan_ended", model=orphan.record.model_id, pids=list(orphan.pids))
        await self._hardware.sample()
        self._env = self._environment()
        device: EngineDevice = "cpu" if self._env.flavour is Flavour.CPU else "cuda"
        self._request = replace(self._request, device=device)
        made = plan(self._catalog, machine_of(self._hardware.inventory), self._request)
        self.refusals = made.refusals
        for refusal in made.refusals:
            log.warning("not_placed", model=refusal.model_id, reason=refusal.message, next_step=refusal.next_step)
        if not made.placements:
            first = made.refusals[0]
            raise NothingToServeError(first.code, first.message, first.next_step)
        self._add(made)
        self._spawn(self._watch())

    async def stop(self) -> None:
        """End all engines; the agent has let their jobs finish or ended them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*(engine.supervisor.stop() for engine in self.engines))

    def offers(self) -> Sequence[ModelOffer]:
        """Models with a ready engine: their places together, and the context that every copy can take."""
        models: dict[str, list[LaunchedEngine]] = {}
        for engine in self.engines:
            if engine.ready:
                models.setdefault(engine.model_id, []).append(engine)
        return [
            ModelOffer(
                id=model,
                loaded=True,
                context=min((e.context for e in engines if e.context is not None), default=None),
                slots=min(MAX_SLOTS, sum(e.placement.slots for e in engines)),
            )
            for model, engines in models.items()
        ]

    def claims(self) -> Sequence[EngineClaim]:
        """Every engine, and every model that does not run here."""
        refused = (
            EngineClaim(model=refusal.model_id, state="failed", cause=one_line(refusal.message))
            for refusal in self.refusals
            if refusal.model_id != AUTO
        )
        return [*(engine.claim() for engine in self.engines), *refused]

    def details(self) -> list[dict[str, Any]]:
        """Every engine in full, and what was asked for and does not run here."""
        refused = [
            {"model": each.model_id, "state": "not_placed", "sentence": each.message, "next_step": each.next_step}
            for each in self.refusals
        ]
        return [*(engine.details() for engine in self.engines), *refused]

    def claim(self, job: Job) -> Lease | Literal["no_engine", "busy"]:
        """The least busy ready copy of the job's model."""
        ready = [engine for engine in self.engines if engine.model_id == job.model and engine.ready]
        if len(ready) > 1:
            ready.sort(key=lambda each: each.active / each.placement.slots)
        for engine in ready:
            if (lease := engine.lease()) is not None:
                return lease
        return "busy" if ready else "no_engine"

    # --- bringing up --------------------------------------------------------------------------------------------------

    def _environment(self) -> EngineEnv:
        """The engine to run, with the driver's own words first where cards were meant to be used."""
        env = find_environment(self._engines_dir) or find_environment(self._engines_dir, Flavour.CPU)
        cards, problems = self._hardware.inventory.usable, self._hardware.problems
        for problem in problems if cards or env is None or env.flavour is Flavour.CUDA else ():
            log.warning("gpu_problem", code=problem.code, reason=problem.message, next_step=problem.next_step)
        if (env is None or env.flavour is Flavour.CUDA) and not cards and problems:
            hint = "" if env else "; or serve small models without a card: `brain-node engine install --cpu`"
            raise NothingToServeError(problems[0].code, problems[0].message, problems[0].next_step + hint)
        if env is None:
            raise NothingToServeError(
                "no_engine", f"no engine is installed in {self._engines_dir}", "brain-node engine install"
            )
        if env.flavour is Flavour.CPU and cards:
            log.warning("cards_unused", note="only the CPU engine is installed; next: brain-node engine install --cuda")
        return env

    def _add(self, made: Plan) -> None:
        """Bring up what a plan places."""
        engines = [self._engine(placement) for placement in made.placements]
        self.engines += engines
        self._start(engines)

    def _start(self, engines: list[LaunchedEngine]) -> None:
        for engine in engines:
            self._spawn(engine.supervisor.start())

    def _may_launch(self, engine: LaunchedEngine) -> bool:
        """Whether no other engine on its cards, or on the CPU, comes up or goes.

        Each measures what is free, so they take turns, after crashes too.
        """
        mine = set(engine.placement.gpu_uuids)
        return not any(
            other.supervisor.settling
            for other in self.engines
            if other is not engine
            and (mine & set(other.placement.gpu_uuids) or not (mine or other.placement.gpu_uuids))
        )

    def _engine(self, placement: Placement) -> LaunchedEngine:
        assert self._env is not None
        folder, fetch = self._weights(placement.model, self._env)

        async def held() -> str | None:
            if not placement.gpu_uuids:
                return None
            await self._hardware.sample()
            return held_reason(placement, self._hardware.inventory)

        def may_launch() -> bool:
            return self._may_launch(engine)

        engine = LaunchedEngine(
            placement, spec_of(placement, self._env, folder), self._around, fetch, held, may_launch, self._changed
        )
        return engine

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("engine_source_failed", reason=repr(error))

    # --- keeping watch ------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        waited_s = 0.0
        async with aiohttp.ClientSession(trust_env=False) as http:
            while True:
                await asyncio.sleep(WATCH_S)
                waited_s += WATCH_S
                replan = waited_s >= REPLAN_S and bool(self.refusals)
                waited_s = 0.0 if replan else waited_s
                try:
                    await self._look(http, replan=replan)
                except Exception:  # one bad look must not be the last one
                    log.exception("watch_failed")

    async def _look(self, http: aiohttp.ClientSession, *, replan: bool) -> None:
        if back := [engine for engine in self.engines if self._card_is_back(engine)]:
            self._start(back)
        for engine in self.engines:
            total = await generated_tokens(http, engine.base_url) if engine.base_url else None
            engine.rate.observe(total, time.monotonic())
        if replan:
            self._replan()

    def _card_is_back(self, engine: LaunchedEngine) -> bool:
        """Look at an engine's card; one that was lost stops it."""
        lost = lost_reason(engine.placement, self._hardware.inventory)
        if lost == engine.lost or (lost is None and engine.supervisor.stopping):  # looked at again soon
            return False
        was, engine.lost = engine.lost, lost
        self._changed()
        if lost is not None and was is None:
            log.error("card_lost", model=engine.model_id, reason=lost)
            self._spawn(engine.supervisor.stop())
        elif lost is None:
            log.info("card_back", model=engine.model_id)
        return lost is None

    def _replan(self) -> None:
        """Try what did not fit again, on the cards that none of our engines uses."""
        machine = machine_of(self._hardware.inventory)
        taken = {uuid for engine in self.engines for uuid in engine.placement.gpu_uuids}
        free = tuple(card for card in machine.cards if card.uuid not in taken)
        if not free and machine.cards:
            return
        wanted = tuple(refusal.model_id for refusal in self.refusals)
        request = replace(self._request, models=(AUTO,) if AUTO in wanted else wanted)
        made = plan(self._catalog, replace(machine, cards=free), request)
        if made.placements:
            placed = {placement.model.id for placement in made.placements}
            log.info("placed_after_all", models=sorted(placed))
            self.refusals = made.refusals
            self._add(made)
            self._changed()
