"""One job on one tab: a slot, the job, the whole answer, and how long that took on our clock."""

import asyncio
import secrets
import struct
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

import orjson

from brain_coord.browser.tab import Tab
from brain_coord.browser.tabs import Tabs
from brain_coord.classes.target import ReplyHead
from brain_coord.link.slot import Slot, SlotLost, SlotQueue
from brain_coord.link.slot_text import Over
from brain_node.contract.limits import FRAME_BYTES
from brain_node.contract.messages import NOT_RUN

MATMUL_PATH: Final = "/v1/compute/matmul"


class WorkFault(Exception):  # noqa: N818 — what happened, not what kind of class it is
    """The tab did not do the job.

    Attributes:
        cause: a stable word, e.g. `tab_lost`, `timeout`, `busy`, `wrong_result`.
        blame: whether it counts against the tab.
    """

    def __init__(self, cause: str, message: str, *, blame: bool = True) -> None:
        super().__init__(message)
        self.cause = cause
        self.blame = blame


@dataclass(frozen=True, slots=True)
class Reply:
    """A tab's whole answer.

    Attributes:
        status: 200, or why it could not.
        body: as it came.
        elapsed_s: from dispatch to the last byte.
    """

    status: int
    body: bytes
    elapsed_s: float


def packed(header: dict[str, Any], payload: bytes = b"") -> bytes:
    """A body: the length of its JSON header, padded to four bytes so that numbers behind it are aligned, and what follows."""
    text = orjson.dumps(header)
    text += b" " * (-len(text) % 4)
    return struct.pack("<I", len(text)) + text + payload


def unpacked(body: bytes) -> tuple[dict[str, Any], memoryview]:
    """The header and the rest of a body.

    Raises:
        WorkFault: it is not of that form.
    """
    try:
        (length,) = struct.unpack_from("<I", body)
        header = orjson.loads(body[4 : 4 + length])
    except (struct.error, orjson.JSONDecodeError):
        header = None
    if not isinstance(header, dict):
        raise WorkFault("protocol", "the tab's answer has no header")
    return header, memoryview(body)[4 + length :]


async def run_job(
    tabs: Tabs, tab: Tab, path: str, body: bytes, *, timeout_s: float, most_bytes: int, release: bool = True
) -> Reply:
    """Give a tab that was reserved for it a job, and wait for the whole answer.

    Args:
        tabs: where it is released.
        tab: with a place reserved.
        path: what to do.
        body: with what.
        timeout_s: for all of it.
        most_bytes: largest answer.
        release: give the reserved place back at the end, however it comes; not so for one job of several on one place.

    Raises:
        WorkFault: no answer, or not a whole one.
    """
    slot: Slot | None = None
    try:
        async with asyncio.timeout(timeout_s):
            if tab.session is None:
                raise WorkFault("tab_lost", "the tab was closed", blame=False)
            assert isinstance(tab.session.slots, SlotQueue)
            slot = await tab.session.slots.take()
            return await _run(slot, path, body, timeout_s, most_bytes)
    except TimeoutError:
        raise WorkFault("timeout", f"no whole answer within {timeout_s:.0f} s") from None
    except SlotLost as error:
        raise WorkFault("tab_lost", str(error)) from None
    finally:
        if slot is not None:
            try:
                await slot.cancel()
            finally:
                slot.give_back()
        if release:
            tabs.release(tab)


async def _run(slot: Slot, path: str, body: bytes, timeout_s: float, most_bytes: int) -> Reply:
    dispatched = monotonic()
    job_id = f"req-{secrets.token_hex(12)}"
    await slot.send_job(job_id, "brain/browser", path, timeout_s, body, FRAME_BYTES)
    status: int | None = None
    parts: list[bytes] = []
    size = 0
    while True:
        message = await slot.read()
        if type(message) is bytes:
            size += len(message)
            if status is None or size > most_bytes:
                slot.close()
                raise WorkFault("protocol", "the tab sent more than was asked")
            parts.append(message)
        elif type(message) is ReplyHead:
            status = message.status
        elif type(message) is Over:
            if not message.ok or status is None:
                cause = message.cause or "failed"
                raise WorkFault(cause, f"the tab ended the job: {cause}", blame=cause not in NOT_RUN)
            return Reply(status, b"".join(parts), monotonic() - dispatched)
