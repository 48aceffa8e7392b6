"""A model hub on loopback: as much of the real one's routes as `huggingface_hub` needs, with faults that tests choose."""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from aiohttp import web

COMMIT = "c0ffee" * 6 + "c0ff"


@dataclass
class Repository:
    """One repository: its files, and who may read it."""

    files: dict[str, bytes]
    gated: bool = False
    """Its description is public, its files want a token whose account accepted the licence."""
    private: bool = False
    """Without a token that may read it, it is as if it were not there."""
    commit: str = COMMIT
    claimed_bytes: dict[str, int] = field(default_factory=dict)
    """Sizes to tell of some files instead of their own."""

    def size(self, name: str) -> int:
        """What is told of a file's size."""
        return self.claimed_bytes.get(name, len(self.files[name]))


@dataclass
class FakeHub:
    """The hub. What it is asked is kept, so that a test can look at it."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    readers: set[str] = field(default_factory=set)
    """Tokens that may read gated and private repositories."""
    cut_after: int | None = None
    """Break the connection of a large file after so many bytes, once."""
    pause_after: int | None = None
    """Stop sending a large file after so many bytes."""
    status: int | None = None
    """Answer everything with this."""
    asked: list[str] = field(default_factory=list)
    ranges: list[str] = field(default_factory=list)
    sent_bytes: int = 0
    url: str = ""

    def _repository(self, request: web.Request) -> Repository:
        self.asked.append(f"{request.method} {request.path}")
        if self.status is not None:
            raise _error(self.status, "")
        name = f"{request.match_info['owner']}/{request.match_info['name']}"
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        found = self.repositories.get(name)
        if found is None or (found.private and token not in self.readers):
            raise _error(404 if token else 401, "RepoNotFound")
        files_asked = "/resolve/" in request.path
        if found.gated and files_asked and token not in self.readers:
            raise _error(403 if token else 401, "GatedRepo")
        revision = request.match_info.get("revision", "main")
        if revision not in ("main", found.commit):
            raise _error(404, "RevisionNotFound")
        return found

    async def info(self, request: web.Request) -> web.Response:
        found = self._repository(request)
        siblings = [
            {"rfilename": name, "size": found.size(name), "blobId": _blob(data)}
            | (
                {"lfs": {"sha256": _sha256(data), "size": found.size(name), "pointerSize": 134}}
                if _is_lfs(name)
                else {}
            )
            for name, data in found.files.items()
        ]
        gated = "manual" if found.gated else False
        name = f"{request.match_info['owner']}/{request.match_info['name']}"
        facts = {"id": name, "modelId": name, "sha": found.commit, "siblings": siblings, "gated": gated, "tags": []}
        return web.json_response(facts | {"private": found.private, "disabled": False, "downloads": 0, "likes": 0})

    async def tree(self, request: web.Request) -> web.Response:
        found = self._repository(request)
        entries = [
            {"type": "file", "path": name, "size": found.size(name), "oid": _blob(data)}
            | ({"lfs": {"oid": _sha256(data), "size": found.size(name), "pointerSize": 134}} if _is_lfs(name) else {})
            for name, data in found.files.items()
        ]
        return web.json_response(entries)

    async def resolve(self, request: web.Request) -> web.StreamResponse:
        found = self._repository(request)
        name = request.match_info["file"]
        data = found.files.get(name)
        if data is None:
            raise _error(404, "EntryNotFound")
        etag = _sha256(data) if _is_lfs(name) else _blob(data)
        headers = {"X-Repo-Commit": found.commit, "ETag": f'"{etag}"', "Accept-Ranges": "bytes"}
        start, status = 0, 200
        if wanted := request.headers.get("Range"):
            self.ranges.append(wanted)
            start, status = int(wanted.removeprefix("bytes=").split("-")[0]), 206
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        answer = web.StreamResponse(status=status, headers=headers)
        answer.content_length = len(data) - start
        await answer.prepare(request)
        if request.method == "HEAD":
            return answer
        await self._send(request, answer, data, start, large=_is_lfs(name))
        return answer

    async def _send(
        self, request: web.Request, answer: web.StreamResponse, data: bytes, start: int, *, large: bool
    ) -> None:
        for at in range(start, len(data), 65536):
            if large and self.cut_after is not None and at >= self.cut_after:
                self.cut_after = None
                assert request.transport is not None
                request.transport.abort()
                return
            if large and self.pause_after is not None and at >= self.pause_after:
                await asyncio.sleep(3600)
            piece = data[at : at + 65536]
            await answer.write(piece)
            self.sent_bytes += len(piece)
        await answer.write_eof()


@contextlib.asynccontextmanager
async def fake_hub(**repositories: Repository) -> AsyncIterator[FakeHub]:
    """Run a hub; `acme__model=Repository(...)` is the repository `acme/model`."""
    hub = FakeHub({name.replace("__", "/"): found for name, found in repositories.items()})
    app = web.Application()
    app.router.add_get("/api/models/{owner}/{name}", hub.info)
    app.router.add_get("/api/models/{owner}/{name}/revision/{revision}", hub.info)
    app.router.add_get("/api/models/{owner}/{name}/tree/{revision}", hub.tree)
    app.router.add_route("*", "/{owner}/{name}/resolve/{revision}/{file:.*}", hub.resolve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    hub.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield hub
    finally:
        await runner.cleanup()


def _error(status: int, code: str) -> web.HTTPException:
    kinds: dict[int, type[web.HTTPException]] = {
        401: web.HTTPUnauthorized,
        403: web.HTTPForbidden,
        404: web.HTTPNotFound,
        503: web.HTTPServiceUnavailable,
    }
    return kinds[status](headers={"X-Error-Code": code, "X-Error-Message": code or "no"}, text=code)


def _is_lfs(name: str) -> bool:
    return name.endswith(".safetensors")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\x00" % len(data) + data).hexdigest()
