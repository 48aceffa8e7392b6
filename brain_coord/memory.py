"""The store as the other rooms want it: a key book, a journal, a shelf of receipts, and admission of nodes."""

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass, field
from time import monotonic
from typing import Any, Final

import structlog

from brain_coord.fleet.node import Node
from brain_coord.fleet.registry import Registry
from brain_coord.fleet.scores import ScoreKeeper
from brain_coord.gateway.auth import Caller
from brain_coord.gateway.errors import fault
from brain_coord.measure.slots import BorneSlots
from brain_coord.receipts.body import ReceiptDraft
from brain_coord.receipts.chain import DamagedReceipt, Sealed
from brain_coord.routing.bounded import Bounded
from brain_coord.routing.vocabulary import Plan
from brain_coord.store.errors import StoreUnavailable, TokenRejected
from brain_coord.store.records import NodeRecord
from brain_coord.store.store import Store
from brain_node.contract.catalog import Catalog
from brain_node.contract.messages import Hello, Offer, Refusal, Refused, Report

log = structlog.get_logger("brain.store")

RETRY_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class StoredKeys:
    """API keys in the store."""

    store: Store
    _callers: Bounded[tuple[str, str], Caller] = field(init=False, default_factory=Bounded)

    def known(self, secret: str) -> Caller | None:
        """Whom a key that was used lately belongs to."""
        key = self.store.keys.known(secret)
        return None if key is None else self._callers.get((key.key_id, key.plan))

    async def find(self, secret: str) -> Caller | None:
        """Whom a key belongs to."""
        try:
            key = await self.store.find_key(secret)
        except StoreUnavailable as error:
            log.warning("keys cannot be looked up", cause=str(error))
            raise fault("store_unavailable", "the key cannot be checked right now", retry_after_s=2) from None
        if key is None:
            return None
        known = key.key_id, key.plan
        return self._callers.get(known) or self._callers.keep(known, Caller(key.key_id, Plan(key.plan)))


@dataclass(frozen=True, slots=True)
class StoredReceipts:
    """Journal and shelf in one: receipts in the store."""

    store: Store

    async def record(self, request_id: str, draft: Callable[[], ReceiptDraft]) -> None:
        """Durable when it returns; a request that cannot be recorded at all fails."""
        try:
            await self.store.append_late(draft)
        except StoreUnavailable as error:
            log.warning("receipt refused", request_id=request_id, cause=str(error))
            raise fault("store_unavailable", "the request cannot be recorded right now", retry_after_s=5) from None

    async def envelope(self, receipt_id: str) -> dict[str, Any] | None:
        """One receipt; an error where it is damaged."""
        sealed = await self.store.get_receipt(receipt_id)
        try:
            return None if sealed is None else sealed.envelope()
        except DamagedReceipt as error:
            log.warning("receipt damaged in the store", receipt=receipt_id, cause=str(error))
            raise fault("receipt_damaged", f"{error} in the store") from None

    def export(self, key_id: str, since_s: float | None, until_s: float | None) -> AsyncIterator[Sealed]:
        """The receipts of one key."""
        return self.store.export_receipts(key_id, since_s, until_s)

    async def signer(self) -> dict[str, Any]:
        """The published history of this coordinator's chain, with those of `others` whose receipts are in its store."""
        histories = await self.store.signers()
        own = next((each for each in histories if each["chain"] == self.store.chain), None)
        return {
            **(own or {"chain": self.store.chain, "keys": []}),
            "others": [each for each in histories if each is not own],
        }

    def health(self) -> dict[str, Any]:
        """Whether receipts are being recorded, and where."""
        return asdict(self.store.health)


@dataclass(slots=True)
class StoredFleet:
    """Admits nodes, and knows again those that joined before."""

    store: Store
    registry: Registry
    scores: ScoreKeeper
    catalog: Catalog
    token_required: bool
    _regions: dict[str, str | None] = field(default_factory=dict)
    """By node id, as the store has them."""
    _writes: set[asyncio.Task[None]] = field(default_factory=set)

    async def load(self) -> None:
        """Make every node known that ever joined, with its benchmarks and its score, before the first one returns."""
        for record in await self.store.list_nodes():
            self.know(record)
        for benchmark in await self.store.load_benchmarks():
            if (node := self.registry.get(benchmark.node_id)) is not None:
                self.registry.benchmarked(node, benchmark)
        await self.scores.recall_all(list(self.registry))

    def know(self, record: NodeRecord) -> Node:
        """The node of a record, made known if it is new here."""
        self._regions[record.node_id] = record.region
        return self.registry.add(_node_of(record))

    def slots(self, node: Node) -> None:
        """A node bears fewer jobs than it claims; that holds over its next joins and our next starts."""
        self._writes.add(task := asyncio.ensure_future(self._write_slots(node.node_id, node.slots_limit)))
        task.add_done_callback(self._writes.discard)

    async def _write_slots(self, node_id: str, slots: int) -> None:
        try:
            await self.store.set_slots_borne(node_id, slots)
        except StoreUnavailable as error:
            log.warning("slots not written down", node=node_id, cause=str(error))

    async def admit(self, hello: Hello, address: str) -> Node | Refused:
        """The node behind a proved hello, or why it may not join."""
        try:
            return await self._admit(hello)
        except TokenRejected as error:
            return Refused(code="bad_token", message=f"{error.message}. {error.next_step}", retry=False)
        except StoreUnavailable as error:
            log.warning("a node cannot be admitted", node=hello.node_id, address=address, cause=str(error))
            return Refused(
                code="try_later", message="the coordinator's store is away", retry=True, retry_after_s=RETRY_S
            )

    async def _admit(self, hello: Hello) -> Node | Refused:
        node = self.registry.get(hello.node_id)
        if node is None and (record := await self.store.get_node(hello.node_id)) is not None:
            node = self.know(record)  # it joined another coordinator that shares this store
        if node is not None and node.banned is not None:
            return Refused(code="banned", message=f"this node is banned: {node.banned}", retry=False)
        if node is not None:
            now = monotonic()
            away_s = node.guard.refused_for_s(now)
            if away_s is not None and node.session is not None:
                return Refused(
                    code="duplicate_node",
                    message=f"two machines use the key of {node.node_id}; give one of them a key of its own "
                    "(move its node.key away)",
                    retry=True,
                    retry_after_s=round(away_s, 1),
                )
        operator = node.operator if node is not None else False
        if node is not None and hello.token is None and self._regions.get(node.node_id) == hello.offer.region:
            # Nothing to write: a fleet that comes back after a restart is no storm of writes, nor needs the store.
            try:
                await self.scores.recall(node)
            except StoreUnavailable:
                log.warning("a node's standing is read later", node=node.node_id)
            return node
        if hello.token is not None:
            operator = (await self.store.redeem_token(hello.token, hello.node_id)).operator
        elif node is None and self.token_required:
            return Refused(
                code="token_required",
                message="this coordinator asks for a join token; its operator makes one with `brain-coord token create`",
                retry=False,
            )
        now_s = time.time()
        record = await self.store.upsert_node(
            NodeRecord(
                node_id=hello.node_id,
                public_key=base64.b64decode(hello.public_key),
                first_seen_s=now_s,
                last_seen_s=now_s,
                operator=operator,
                region=hello.offer.region,
            )
        )
        node = self.know(record)
        self.registry.belongs(node, operator=record.operator)
        if record.first_seen_s == now_s:
            self.scores.begins(node)
        else:
            await self.scores.recall(node)
        return node

    def judge(self, node: Node, offer: Offer, report: Report) -> tuple[Refusal, ...]:
        """Only models of this coordinator's catalog are routed."""
        del node, report
        return tuple(
            Refusal(model=model.id, reason="not in this coordinator's catalog")
            for model in offer.models
            if model.id not in self.catalog
        )


def _node_of(record: NodeRecord) -> Node:
    borne = BorneSlots() if record.slots_borne is None else BorneSlots(record.slots_borne, collapsed=True)
    return Node(
        node_id=record.node_id,
        public_key=record.public_key,
        operator=record.operator,
        banned=record.banned_reason,
        trusted=record.trusted,
        operator_drain=record.draining,
        first_seen=record.first_seen_s,
        last_seen_s=record.last_seen_s,
        slots_limit=borne.limit,
        borne=borne,
    )
