"""Fetches one model from a hub; run as a script by an interpreter that has `huggingface_hub`, never imported.

It reads one JSON line with the request (a token would show in words or environment), says one JSON line with the plan,
waits for `go` (the disk is checked in between), fetches, and says one JSON line with the folder or the fault. A process
of its own, since the hub's threads cannot be stopped: killing it is how a download is given up.
"""

import errno
import fnmatch
import hashlib
import importlib
import json
import os
import sys
import threading
from pathlib import Path
from typing import IO, Any

# Weights as safetensors only: the older formats can carry code, and so can Python files.
WANTED = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja", "*.tiktoken")
# A full disk, a quota, and the largest file that the file system or a limit allows.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
UNWANTED = ("original/*", "metal/*", "onnx/*", "consolidated*", "*.gguf", "*.py", "*.bin", "*.pt", "*.pth")


def say(**facts: Any) -> None:
    """Say one line."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def wanted(name: str) -> bool:
    """Whether an engine needs the file."""
    kept = any(fnmatch.fnmatch(name, pattern) for pattern in WANTED)
    return kept and not any(fnmatch.fnmatch(name, pattern) for pattern in UNWANTED)


def plan(hub: Any, request: dict[str, Any]) -> tuple[Any, list[str]]:
    """Ask the hub what there is, and say so."""
    info = hub.HfApi().repo_info(
        request["repo"], revision=request["revision"], files_metadata=True, token=request["token"]
    )
    files = [file for file in info.siblings if wanted(file.rfilename)]
    sizes = {file.rfilename: file.size or 0 for file in files}
    cache = Path(request["cache_dir"] or hub.constants.HF_HUB_CACHE).expanduser().resolve()
    folder = cache / f"models--{request['repo'].replace('/', '--')}"
    say(
        plan={
            "commit": info.sha,
            "cache": str(cache),
            "blobs": str(folder / "blobs"),  # files of the same content share one
            "files": sizes,
            "blob_sizes": {(file.lfs.sha256 if file.lfs else file.blob_id): file.size or 0 for file in files},
        }
    )
    return info, list(sizes)


def leave_with_the_agent() -> None:
    """End when the agent does, however it ends: its end of the pipe closes."""
    sys.stdin.read()
    os._exit(1)


def resume_partials(hub: Any) -> set[str]:
    """Make the library go on with the half files of a process that was killed; gives the set of names it did so for.

    It writes each download to a file of a name of its own and begins anew after a kill, which on a slow line may never
    end, and the halves would fill the disk. It holds a lock on what it fetches, so another half of it belongs to nobody.
    """
    module = importlib.import_module("huggingface_hub.file_download")
    original = module.http_get
    resumed: set[str] = set()

    def http_get(url: str, temp_file: IO[bytes], **options: Any) -> Any:
        mine = Path(temp_file.name)
        blob = mine.name.split(".")[0]
        halves = [half for half in mine.parent.glob(f"{blob}.*incomplete") if half.name != mine.name]
        best = max(halves, key=lambda half: half.stat().st_size, default=None)
        if best is None or options.get("resume_size") or best.stat().st_size > (options.get("expected_size") or 0):
            return original(url, temp_file, **options)
        best.replace(mine)
        for half in halves:
            half.unlink(missing_ok=True)
        resumed.add(blob)
        with mine.open("r+b") as file:
            size = file.seek(0, 2)
            return original(url, file, resume_size=size, **options)

    vars(module)["http_get"] = http_get
    hub.constants.DOWNLOAD_CHUNK_SIZE = 1 << 20  # what is not written yet is lost with a kill, and shows no progress
    return resumed


def check_resumed(folder: Path, resumed: set[str]) -> None:
    """Compare what was put together from halves with its hash: a crash of the machine may have left holes.

    Raises:
        ValueError: it is not what the hub has; the file was removed.
    """
    for file in folder.rglob("*"):
        blob = file.resolve()
        if blob.name in resumed and hash_of(blob, like=blob.name) != blob.name:
            blob.unlink()
            raise ValueError(f"{file.name} was damaged and is fetched again")


def hash_of(file: Path, like: str) -> str:
    """A file's hash as the hub names contents: SHA-256 of large ones, what git makes of the others."""
    if len(like) == 64:
        with file.open("rb") as source:
            return hashlib.file_digest(source, "sha256").hexdigest()
    content = file.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def fault_of(hub: Any, error: BaseException) -> str:
    """Name a fault as `brain_node.engine.causes` does."""
    errors = hub.errors
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, errors.GatedRepoError):
            return "gated_model"
        if isinstance(seen, errors.RepositoryNotFoundError | errors.RevisionNotFoundError | errors.HFValidationError):
            return "missing_model"
        if isinstance(seen, OSError) and seen.errno in NO_ROOM:
            return "disk_full"
        status = getattr(getattr(seen, "response", None), "status_code", None)
        if status in (401, 403):
            return "gated_model"
        seen = seen.__cause__ or seen.__context__
    return "download_failed"


def main() -> int:
    """Serve one request."""
    request = json.loads(sys.stdin.readline())
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError as error:
        say(fault="broken_install", text=str(error))
        return 1
    try:
        info, names = plan(hub, request)
        if sys.stdin.readline().strip() != "go":
            return 0
        threading.Thread(target=leave_with_the_agent, daemon=True).start()
        resumed = resume_partials(hub)
        path = hub.snapshot_download(
            request["repo"],
            revision=info.sha,
            cache_dir=request["cache_dir"],
            allow_patterns=names,
            token=request["token"],
            max_workers=4,
        )
        check_resumed(Path(path), resumed)
    except Exception as error:
        say(fault=fault_of(hub, error), text=f"{type(error).__name__}: {error}"[:1000])
        return 1
    say(path=path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
