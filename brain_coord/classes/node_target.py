"""A Brain Node as a target: takes one of its slots for one job."""

from time import monotonic

from brain_coord.classes.health import TargetHealth
from brain_coord.classes.prices import Prices, by_ask
from brain_coord.classes.samples import ClassSamples
from brain_coord.classes.target import JobSpec, ReplyHead, Take, TargetFault
from brain_coord.fleet.node import Node
from brain_coord.fleet.registry import Registry
from brain_coord.link.slot import Slot, SlotLost, SlotQueue
from brain_coord.link.slot_text import TAKEN, Over, Reply
from brain_coord.measure.slots import Load
from brain_coord.measure.speed import StreamSample
from brain_coord.routing.vocabulary import ResourceClass
from brain_node.contract.limits import FRAME_BYTES
from brain_node.contract.messages import NOT_RUN


class NodeTarget:
    """One node that was ranked for a request.

    Attributes:
        dispatched: when the last job left for the node, monotonic seconds; waiting for one of its slots to open is over then.
    """

    dispatched = 0.0
    _prompt_bytes = 0
    _load_before = 0.0
    _load = 0.0
    """Jobs on the node while the last one ran, on average."""

    def __init__(
        self,
        registry: Registry,
        node: Node,
        model: str,
        resource_class: ResourceClass,
        samples: ClassSamples,
        health: TargetHealth | None = None,
    ) -> None:
        self.health = health or TargetHealth(node.node_id)
        self._samples = samples
        self._registry = registry
        self._node = node
        self.name = node_id = node.node_id
        self.node_id: str | None = node_id
        self.model = model
        self.resource_class = resource_class

    @property
    def prices(self) -> Prices:
        """By its ask."""
        return by_ask(self._node.reported.offer.ask_usd_per_1m)

    async def start(self, job: JobSpec) -> "NodeExchange":
        """Take a slot, send the job, wait until the node accepted it.

        Raises:
            TargetFault: no slot, the node refused, or the connection broke; nothing ran unless it says so.
        """
        node = self._node
        session = node.session
        if session is None:
            raise TargetFault("node_lost", "the node went offline", ran=False, blame=False)
        assert isinstance(session.slots, SlotQueue)
        if not self._registry.reserve(node):
            raise TargetFault("no_free_slot", "another request took the last slot", ran=False, blame=False)
        slot: Slot | None = None
        try:
            slot = session.slots.idle() or await session.slots.take()
            self.dispatched, self._prompt_bytes = monotonic(), len(job.body)
            self._load_before = node.load.until(self.dispatched)
            await slot.send_job(job.job_id, self.model, job.path, job.deadline_s, job.body, FRAME_BYTES)
            answer = await slot.read()
            if answer is not TAKEN:
                raise self._not_taken(slot, answer)
        except BaseException as error:
            try:
                if slot is not None:
                    await slot.cancel()
            finally:
                if slot is not None:
                    slot.give_back()
                self._registry.release(node)
            if isinstance(error, SlotLost):
                raise TargetFault("node_lost", str(error), ran=False) from error
            raise
        return NodeExchange(self, self._registry, node, slot)

    def ended(self, load: Load) -> None:
        """The job's slot was given back just now: what the node bore meanwhile is known, and not of what comes after it."""
        self._load = load.mean(self._load_before, self.dispatched)

    @staticmethod
    def _not_taken(slot: Slot, answer: bytes | Reply) -> TargetFault:
        if type(answer) is not Over:
            slot.close()
            return TargetFault("protocol", "the node answered before it accepted the job", ran=True)
        cause = answer.cause or "refused"
        # A node that is full or leaves says so honestly: its slots are counted on both sides, and may differ shortly.
        blame = cause not in ("busy", "draining", "cancelled")
        return TargetFault(cause, f"the node refused the job: {cause}", ran=cause not in NOT_RUN, blame=blame)

    def outcome(
        self,
        result: str,
        *,
        first_output_ms: float | None,
        total_ms: float | None,
        stream: StreamSample | None = None,
    ) -> None:
        """Only a completed exchange teaches speed; every outcome counts for the node's reliability.

        An answer with nothing in it counts for nothing: a node must gain nothing by ending at once.
        """
        if result != "completed":
            self._samples.failed()
            self._registry.record(self._node, "customer", result, self.model)
            return
        if stream is not None and stream.empty:
            self._registry.empty(self._node)
            return
        self._samples.completed(total_ms)
        if stream is not None:
            resized = self._registry.lessons.learn(
                self._node,
                self.model,
                stream,
                monotonic(),
                prompt_bytes=self._prompt_bytes,
                dispatched=self.dispatched,
                streamed=first_output_ms is not None,
                load=self._load,
            )
            if resized:
                self._registry.resized(self._node)
        self._registry.record(self._node, "customer", result, self.model)


class NodeExchange:
    """One job on one slot."""

    _began = False

    def __init__(self, target: NodeTarget, registry: Registry, node: Node, slot: Slot) -> None:
        self._target = target
        self._registry = registry
        self._node = node
        self._slot = slot

    async def head(self) -> ReplyHead:
        """The engine's status as the node passes it on."""
        try:
            reply = await self._slot.read()
        except SlotLost as error:
            raise _lost(error) from error
        if type(reply) is ReplyHead:
            return reply
        raise self._unexpected(reply, "the node sent an answer before its status")

    async def pass_on(self, take: Take) -> None:
        """Hand the engine's bytes on as they come."""
        try:
            reply = await self._slot.read()
            if type(reply) is bytes:
                waiting = take(reply)
                self._began = True
                self._registry.begins(self._node)
                if waiting is not None:
                    await waiting
                reply = await self._slot.read(take)
        except SlotLost as error:
            raise _lost(error) from error
        if type(reply) is not Over or not reply.ok:
            raise self._unexpected(reply, "the node sent a second status")

    def _unexpected(self, reply: bytes | Reply, what: str) -> TargetFault:
        if type(reply) is Over:
            cause = reply.cause or "failed"
            return TargetFault(cause, f"the node ended the job: {cause}", ran=cause not in NOT_RUN)
        self._slot.close()
        return TargetFault("protocol", what, ran=True)

    async def close(self) -> None:
        """Cancel what still runs, give the slot back, and count the job as over."""
        slot = self._slot
        try:
            if slot.job_id is not None:  # the node has not told its end
                await slot.cancel()
        finally:
            slot.give_back()
            self._registry.release(self._node, begun=self._began)
            self._target.ended(self._node.load)


def _lost(error: SlotLost) -> TargetFault:
    return TargetFault("node_lost", str(error), ran=True)
