"""Weights from a model hub, fetched before an engine is launched: checked for room, shown, resumable.

What was fetched whole is noted beside the node's data, so a later start needs no hub, and half a download is never
taken for a model.
"""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from brain_node.contract.secret_file import write_private
from brain_node.engine import fetch_worker
from brain_node.engine.causes import Cause, CauseKind
from brain_node.engine.fetch import FetchError
from brain_node.engine.view import DownloadProgress

SPARE_BYTES: Final = 1 << 30
"""Free space that a download leaves: a disk filled to the brim takes everything else down with it."""

_LOOK_EVERY_S: Final = 1.0
_PLAN_LIMIT_S: Final = 120.0
"""From the question what a model consists of to its answer; the hub's library waits for that without end."""
_SILENT_LIMIT_S: Final = 300.0
_RATE_OVER_S: Final = 15.0
_LONGEST_LINE: Final = 1 << 24
_PASS_ON: Final = re.compile(
    r"^(PATH|HOME|USER|LANG|LC_\w+|TZ|TMPDIR|HF_HOME|HF_HUB_CACHE|HF_ENDPOINT|HF_HUB_\w+|HF_XET_\w+|XDG_CACHE_HOME"
    r"|SSL_CERT_FILE|SSL_CERT_DIR|REQUESTS_CA_BUNDLE|(HTTPS?|ALL|NO)_PROXY)$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model at a hub."""

    repo: str
    revision: str

    @property
    def slug(self) -> str:
        """A file name for it."""
        return re.sub(r"[^A-Za-z0-9._-]", "-", f"{self.repo.replace('/', '--')}@{self.revision}")


@dataclass(frozen=True, slots=True)
class Hub:
    """How this node gets at a hub."""

    python: Path
    """An interpreter that has `huggingface_hub`: the engine environment's own."""
    data_dir: Path
    token: str | None = None
    """`HF_TOKEN`: given to the hub alone, never shown."""
    cache_dir: Path | None = None
    """Where models are kept; `None` leaves it to the hub's own settings (`HF_HOME`, `HF_HUB_CACHE`)."""
    free_bytes: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free
    spare_bytes: int = SPARE_BYTES
    clock: Callable[[], float] = time.monotonic


def fetched_weights(hub: Hub, model: HubModel) -> Path | None:
    """The folder of a model that was fetched whole and is still all there; asks nobody."""
    try:
        marker = json.loads(_marker(hub, model).read_text(encoding="utf-8"))
        folder = Path(marker["path"])
        whole = all((folder / name).stat().st_size == size for name, size in marker["files"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return folder if whole and marker["files"] else None


async def fetch_weights(hub: Hub, model: HubModel, on_progress: Callable[[DownloadProgress], None]) -> Path:
    """Fetch a model, or return at once the whole one that is there; cancelling it ends the download.

    Raises:
        FetchError: its cause tells whether trying again can help.
    """
    if (found := fetched_weights(hub, model)) is not None:
        return found
    worker = await asyncio.create_subprocess_exec(
        str(hub.python),
        "-I",
        fetch_worker.__file__,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=_environment(),
        start_new_session=True,
        limit=_LONGEST_LINE,
    )
    try:
        return await _fetch(hub, model, worker, on_progress)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
        await worker.wait()


async def _fetch(
    hub: Hub, model: HubModel, worker: asyncio.subprocess.Process, on_progress: Callable[[DownloadProgress], None]
) -> Path:
    request = {
        "repo": model.repo,
        "revision": model.revision,
        "token": hub.token,
        "cache_dir": str(hub.cache_dir) if hub.cache_dir else None,
    }
    await _say(worker, json.dumps(request))
    try:
        async with asyncio.timeout(_PLAN_LIMIT_S):
            plan = (await _hear(worker, hub, model))["plan"]
    except TimeoutError:
        raise FetchError(_lost(model, f"the hub did not say within {_PLAN_LIMIT_S:.0f} s what there is")) from None
    files: dict[str, int] = plan["files"]
    if not any(name.endswith(".safetensors") for name in files):
        raise FetchError(
            Cause(
                CauseKind.UNSUPPORTED_MODEL,
                f"{model.repo} has no weights as safetensors",
                "choose a repository that has them",
            )
        )
    _check_room(hub, model, plan)
    await _say(worker, "go")
    meter = _Meter(sum(plan["blob_sizes"].values()), hub.clock)
    answer = asyncio.ensure_future(_hear(worker, hub, model))
    try:
        while True:
            on_progress(meter.note(await asyncio.to_thread(_bytes_in, plan)))
            await asyncio.wait([answer], timeout=_LOOK_EVERY_S)
            if answer.done():
                break
            if meter.silent_s > _SILENT_LIMIT_S:
                raise FetchError(_lost(model, f"nothing came for {meter.silent_s:.0f} s"))
        folder = Path((await answer)["path"])
    finally:
        answer.cancel()
    on_progress(meter.note(meter.total_bytes))
    marker = {"repo": model.repo, "commit": plan["commit"], "path": str(folder), "files": files}
    await asyncio.to_thread(write_private, _marker(hub, model), json.dumps(marker))
    return folder


class _Meter:
    """How far a download is and how fast it goes."""

    def __init__(self, total_bytes: int, clock: Callable[[], float]) -> None:
        self.total_bytes = total_bytes
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()
        self._moved_at = clock()

    @property
    def silent_s(self) -> float:
        return self._clock() - self._moved_at

    def note(self, done_bytes: int) -> DownloadProgress:
        now = self._clock()
        if not self._seen or done_bytes > self._seen[-1][1]:
            self._moved_at = now
        self._seen.append((now, done_bytes))
        while self._seen[0][0] < now - _RATE_OVER_S and len(self._seen) > 2:
            self._seen.popleft()
        (began, at_first), (_, at_last) = self._seen[0], self._seen[-1]
        rate = (at_last - at_first) / (now - began) if now > began and at_last > at_first else None
        left = max(0, self.total_bytes - done_bytes)
        return DownloadProgress(done_bytes, self.total_bytes, rate, left / rate if rate else None)


def _check_room(hub: Hub, model: HubModel, plan: dict[str, Any]) -> None:
    total = sum(plan["blob_sizes"].values())
    # What is there counts, be it whole or half: the hub goes on where it was.
    need = max(0, total - _bytes_in(plan))
    cache = Path(plan["cache"])
    while not cache.exists():
        cache = cache.parent
    free = hub.free_bytes(cache)
    if need + hub.spare_bytes > free and need > 0:
        raise FetchError(
            Cause(
                CauseKind.DISK_FULL,
                f"{model.repo} needs {need / 2**30:.1f} GiB more in {plan['cache']}, where {free / 2**30:.1f} GiB are free",
                "free some space, or let HF_HOME name a folder on a larger disk",
                figures={"need_bytes": need, "free_bytes": free},
            )
        )


async def _say(worker: asyncio.subprocess.Process, line: str) -> None:
    assert worker.stdin is not None
    with contextlib.suppress(ConnectionError):
        worker.stdin.write(line.encode() + b"\n")
        await worker.stdin.drain()


async def _hear(worker: asyncio.subprocess.Process, hub: Hub, model: HubModel) -> dict[str, Any]:
    """The worker's next line that is one; the hub's libraries may print lines of their own."""
    assert worker.stdout is not None
    while line := await worker.stdout.readline():
        with contextlib.suppress(ValueError):
            said = json.loads(line)
            if isinstance(said, dict) and {"plan", "path", "fault"} & set(said):
                if "fault" in said:
                    raise FetchError(_cause(CauseKind(said["fault"]), _hide(hub, said["text"]), hub, model))
                return said
    raise FetchError(_lost(model, "the download was ended from outside"))


def _cause(kind: CauseKind, text: str, hub: Hub, model: HubModel) -> Cause:
    evidence = tuple(line for line in text.splitlines() if line.strip())[:4]
    if kind is CauseKind.GATED_MODEL:
        if hub.token:
            advice = f"accept the licence of {model.repo} on its page at the hub with the account of HF_TOKEN"
        else:
            advice = f"accept the licence of {model.repo} on its page at the hub, then put that account's token into HF_TOKEN"
        return Cause(kind, f"the hub does not give {model.repo} to us: it is gated", advice, evidence)
    if kind is CauseKind.MISSING_MODEL:
        message = f"{model.repo} at revision {model.revision} was not found at the hub"
        if not hub.token:
            message += "; without a token a private or gated model looks the same"
        return Cause(kind, message, "check the name, or put a token that may read it into HF_TOKEN", evidence)
    if kind is CauseKind.DISK_FULL:
        return Cause(kind, f"the disk filled up while {model.repo} came", "free some space", evidence)
    if kind is CauseKind.BROKEN_INSTALL:
        message, advice = "nothing here can talk to a hub", "run: brain-node engine install"
        return Cause(kind, message, advice, evidence)
    return _lost(model, evidence[0] if evidence else "the hub cannot be reached", evidence)


def _lost(model: HubModel, why: str, evidence: tuple[str, ...] = ()) -> Cause:
    message = f"fetching {model.repo} failed: {why}"
    return Cause(CauseKind.DOWNLOAD_FAILED, message, "it goes on by itself; check the network if it does not", evidence)


def _hide(hub: Hub, text: str) -> str:
    if hub.token:
        text = text.replace(hub.token, "[hidden]")
    return re.sub(r"hf_[A-Za-z0-9]{8,}", "[hidden]", text)


def _bytes_in(plan: dict[str, Any]) -> int:
    """Bytes of the planned files that are on the disk, halves included; those of other revisions do not count."""
    wanted: dict[str, int] = plan["blob_sizes"]
    total = 0
    with contextlib.suppress(OSError):
        for entry in os.scandir(plan["blobs"]):
            if entry.name.split(".")[0] in wanted:
                with contextlib.suppress(OSError):
                    total += entry.stat().st_size
    return total


def _marker(hub: Hub, model: HubModel) -> Path:
    return hub.data_dir / "weights" / f"{model.slug}.json"


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if _PASS_ON.match(name)}
    # Without Xet: its transfers begin anew after each interruption and show no progress on the disk.
    kept["HF_HUB_DISABLE_XET"] = "1"
    return kept | {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "PYTHONUNBUFFERED": "1"}
