"""Which tab holds which stage: stages are given to tabs as they come, replicas are compared before they count."""

import asyncio
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final

import numpy as np
import structlog

from brain_coord.browser.checkpoint import CheckpointError
from brain_coord.browser.models import BrowserModel, Piece, Stage, model_files, read_model
from brain_coord.browser.speech import Speech
from brain_coord.browser.stage_work import Floats, Span, StageDesk, activations
from brain_coord.browser.tab import Tab
from brain_coord.browser.tabs import Tabs
from brain_coord.browser.work import WorkFault
from brain_coord.routing.inputs import ModelNeed, NodeRequest
from brain_coord.routing.node_router import decide_node
from brain_coord.routing.vocabulary import Liveness

log = structlog.get_logger("brain.browser")

LOOK_S: Final = 0.5
FILES_S: Final = 2.0
RETRY_S: Final = 60.0
SUSPENDED_S: Final = 600.0

PROBE_TOKENS: Final = 8
AGREE_RMS: Final = 2e-3
AGREE_TOP: Final = 0.9
"""Of the best 64 tokens of the last stage, so many must be the same."""


@dataclass(slots=True)
class Shelf:
    """The models that were written down, read again when their files change."""

    data_dir: Path
    models: dict[str, BrowserModel] = field(default_factory=dict)
    speech: dict[str, Speech] = field(default_factory=dict)
    pieces: dict[str, tuple[Path, Piece]] = field(default_factory=dict)
    _seen: dict[Path, int] = field(default_factory=dict)

    async def look(self) -> None:
        """Take what changed."""
        found = {path: path.stat().st_mtime_ns for path in model_files(self.data_dir)}
        if found == self._seen:
            return
        self._seen = found
        await asyncio.to_thread(self._read, list(found))

    def _read(self, paths: list[Path]) -> None:
        models: dict[str, BrowserModel] = {}
        speech: dict[str, Speech] = {}
        for path in paths:
            try:
                model = read_model(path)
                speech[model.model_id] = Speech(model.folder)
            except (CheckpointError, OSError, ValueError, KeyError) as error:
                log.warning("browser model not offered", file=str(path), reason=str(error))
                continue
            models[model.model_id] = model
        self.speech = speech
        self.models = models
        self.pieces = {
            piece.sha256: (model.folder / piece.file, piece)
            for model in models.values()
            for stage in model.stages
            for _, pieces in stage.tensors
            for piece in pieces
        }

    def stages(self) -> Iterator[tuple[BrowserModel, Stage]]:
        """Every stage of every model, in order."""
        for _, model in sorted(self.models.items()):
            for stage in model.stages:
                yield model, stage


@dataclass(slots=True)
class StageKeeper:
    """Gives stages to tabs: every stage first, then replicas."""

    tabs: Tabs
    shelf: Shelf
    desk: StageDesk
    agreed: dict[str, set[frozenset[str]]] = field(default_factory=dict)
    """By stage, the pairs of tabs that were compared and agreed."""
    _suspended: dict[tuple[str, str], float] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def left(self, tab: Tab) -> None:
        """The tab is gone, and with it what it held and what was found out about that."""
        for pairs in self.agreed.values():
            pairs -= {pair for pair in pairs if tab.tab_id in pair}
        now = monotonic()
        self._suspended = {key: until for key, until in self._suspended.items() if until > now}

    def holders(self, stage: Stage) -> list[Tab]:
        """The tabs that hold a stage and may be asked for it."""
        return [tab for tab in self.tabs.online if stage.name in tab.stages]

    def held(self, model: BrowserModel) -> bool:
        """Whether somebody holds every stage."""
        return all(self.holders(stage) for stage in model.stages)

    def twins(self, stage: Stage, tab_id: str) -> list[str]:
        """The tabs whose results for a stage were compared with this one's and agreed."""
        return sorted(
            other for pair in self.agreed.get(stage.name, set()) if tab_id in pair for other in pair - {tab_id}
        )

    async def run(self) -> None:
        """Give stages out for ever."""
        looked = -FILES_S
        while True:
            if monotonic() - looked >= FILES_S:
                looked = monotonic()
                await self.shelf.look()
            self._give_out()
            await asyncio.sleep(LOOK_S)

    def _give_out(self) -> None:
        for model, stage in self.shelf.stages():
            loading = [tab for tab in self.tabs.online if tab.loading == stage.name]
            holders = self.holders(stage)
            if not holders and not loading:
                self._give(model, stage, idle_only=False)
        for model, stage in sorted(self.shelf.stages(), key=lambda each: len(self.holders(each[1]))):
            loading = [tab for tab in self.tabs.online if tab.loading == stage.name]
            if self.holders(stage) and not loading and len(self.holders(stage)) < model.replicas:
                self._give(model, stage, idle_only=True)

    def _give(self, model: BrowserModel, stage: Stage, *, idle_only: bool) -> None:
        """To the tab that holds least, by the node router's order among equals."""
        now, now_s = monotonic(), time.time()
        able = {
            tab.tab_id: tab
            for tab in self.tabs.online
            if stage.name not in tab.stages
            and tab.loading is None
            and tab.ops_s is not None
            and tab.liveness(now) in (Liveness.ONLINE, Liveness.BUSY)
            and self._suspended.get((tab.tab_id, stage.name), 0.0) < now
            and not (idle_only and tab.stages)
            and (tab.memory_mib is None or self._held_mib(tab) + stage.need_mib <= tab.memory_mib)
        }
        if not able:
            return
        need = ModelNeed("compute.matmul_u32")  # what every tab has been measured at
        decision = decide_node(NodeRequest(), need, [tab.state(now, now_s) for tab in able.values()])
        ranked = [able[score.node_id] for score in decision.ranked]
        if not ranked:
            return
        tab = min(ranked, key=lambda each: len(each.stages))
        tab.loading = stage.name
        task = asyncio.create_task(self._load(tab, model, stage))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _held_mib(self, tab: Tab) -> int:
        return sum(stage.need_mib for _, stage in self.shelf.stages() if stage.name in tab.stages)

    async def _load(self, tab: Tab, model: BrowserModel, stage: Stage) -> None:
        session = tab.session
        try:
            await self.tabs.tell(tab, "loading", f"loads {stage.name}")
            said = await self.desk.load(tab, model, stage)
            if tab.session is not session:
                return
            log.info("stage loaded", tab=tab.tab_id, stage=stage.name, cached_bytes=said.get("cached"))
            others = [each for each in self.holders(stage) if each is not tab]
            if others and not await self._agrees(model, stage, others[0], tab):
                return
            tab.stages.add(stage.name)
            self.tabs.capacity()
        except WorkFault as fault:
            log.warning("stage not loaded", tab=tab.tab_id, stage=stage.name, cause=fault.cause, reason=str(fault))
            self._suspended[tab.tab_id, stage.name] = monotonic() + RETRY_S
        finally:
            if tab.session is session:
                tab.loading = None
                await self.tabs.tell(tab, "standing", f"holds {', '.join(sorted(tab.stages)) or 'no stage'}")

    async def _agrees(self, model: BrowserModel, stage: Stage, one: Tab, two: Tab) -> bool:
        """Compare a replica with who holds the stage, on activations that neither can have seen."""
        rng = np.random.default_rng(secrets.randbits(128))
        if stage.first == 0:
            hidden = model.embeddings([int(token) for token in rng.integers(0, model.config.vocab_size, PROBE_TOKENS)])
        else:
            hidden = rng.standard_normal((PROBE_TOKENS, model.config.hidden_size), dtype=np.float32)
        try:
            made = [await self._probe(model, stage, tab, hidden) for tab in (one, two)]
        except WorkFault as fault:
            log.warning("replica not compared", stage=stage.name, tabs=[one.tab_id, two.tab_id], cause=fault.cause)
            self._suspended[two.tab_id, stage.name] = monotonic() + RETRY_S
            return False
        disagreement = differ(*made, final=stage.final)
        if disagreement is None:
            self.agreed.setdefault(stage.name, set()).add(frozenset({one.tab_id, two.tab_id}))
            return True
        # Two words against each other: neither serves the stage until others have taken it.
        log.warning("replicas disagree", stage=stage.name, tabs=[one.tab_id, two.tab_id], reason=disagreement)
        for tab in (one, two):
            tab.stages.discard(stage.name)
            self._suspended[tab.tab_id, stage.name] = monotonic() + SUSPENDED_S
            await self.tabs.tell(tab, "disagreement", f"{stage.name}: {disagreement}")
            await self.desk.drop(tab, [stage.name], None)
        self.tabs.capacity()
        return False

    async def _probe(self, model: BrowserModel, stage: Stage, tab: Tab, hidden: Floats) -> Floats:
        session = f"probe-{secrets.token_hex(8)}"
        rows = PROBE_TOKENS if stage.final else 0
        span = Span(session, 0, PROBE_TOKENS, rows, top=0)
        data, _ = await self.desk.run(tab, model, [stage], span, hidden, held=False)
        await self.desk.drop(tab, [stage.name], session)
        width = model.config.vocab_size if stage.final else model.config.hidden_size
        return activations(data, PROBE_TOKENS, width)

    async def stop(self) -> None:
        """End what loads."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def differ(one: Floats, two: Floats, *, final: bool) -> str | None:
    """How two results of a stage differ by more than rounding, `None` when they agree."""
    rms = float(np.sqrt(np.mean(np.square(one - two)) / max(1e-30, float(np.mean(np.square(one))))))
    if rms > AGREE_RMS:
        return f"a relative difference of {rms:.2g} (RMS) where {AGREE_RMS:g} is rounding"
    if final:
        count = min(64, one.shape[1])
        tops = [np.argsort(-each, axis=1, kind="stable")[:, :count] for each in (one, two)]
        shared = min(len(set(a) & set(b)) / count for a, b in zip(*(top.tolist() for top in tops), strict=True))
        if shared < AGREE_TOP:
            return f"only {shared:.0%} of the best {count} tokens are the same"
    return None
