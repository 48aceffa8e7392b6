"""The administration socket: how a command on the same machine asks the running coordinator. A unix socket, 0600.

One request a connection: a line of JSON `{"op": …, …}`, answered by a line of JSON `{"ok": …}` or `{"error": …}`.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson
import structlog

from brain_coord.store.errors import StoreError
from brain_node.contract.private_socket import connect_private, listen_private

log = structlog.get_logger("brain.admin")

SOCKET_NAME: Final = "coord.sock"
LINE_BYTES: Final = 64 * 1024
ANSWER_BYTES: Final = 64 * 1024 * 1024
TIMEOUT_S: Final = 10.0

Operation = Callable[[dict[str, Any]], Awaitable[Any]]


class AdminError(Exception):
    """The request cannot be carried out; the text says why."""


class NotRunning(Exception):  # noqa: N818
    """No coordinator runs on this data directory."""


@dataclass(slots=True)
class AdminServer:
    """Answers the commands of one machine's operator."""

    path: Path
    operations: dict[str, Operation]
    _server: asyncio.Server | None = None
    _open: set[asyncio.Task[Any]] = field(default_factory=set)

    async def start(self) -> None:
        """Listen. A socket file that a dead coordinator left is replaced; the store's lock rules out a living one."""
        listener = listen_private(self.path.parent, self.path.name)
        self._server = await asyncio.start_unix_server(self._answer, sock=listener, limit=LINE_BYTES)

    async def stop(self) -> None:
        """Stop listening and take the file away."""
        if self._server is not None:
            self._server.close()
        for task in tuple(self._open):
            task.cancel()
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                request = orjson.loads(await reader.readline())
                reply = await self._run(request)
                writer.write(orjson.dumps(reply) + b"\n")
                await writer.drain()
        except (OSError, ValueError, TimeoutError) as error:
            log.info("administration request dropped", cause=str(error))
        finally:
            self._open.discard(task)
            writer.close()

    async def _run(self, request: Any) -> dict[str, Any]:
        operation = self.operations.get(str(request.get("op"))) if isinstance(request, dict) else None
        if operation is None:
            return {"error": "this coordinator does not know that command; it may be of another version"}
        try:
            return {"ok": await operation(request)}
        except (AdminError, StoreError) as error:
            return {"error": str(error)}
        except Exception:
            log.exception("administration request failed", op=request["op"])
            return {"error": "a fault of the coordinator; its log says more"}


def ask(data_dir: Path, op: str, **arguments: Any) -> Any:
    """Ask the coordinator that runs on a data directory.

    Raises:
        NotRunning: none does.
        AdminError: it refused, or does not answer.
        PermissionError: it belongs to another user.
    """
    try:
        with connect_private(data_dir, SOCKET_NAME, TIMEOUT_S) as connection:
            connection.sendall(orjson.dumps({"op": op, **arguments}) + b"\n")
            with connection.makefile("rb") as answers:
                line = answers.readline(ANSWER_BYTES)
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        raise NotRunning from None
    except PermissionError:
        raise
    except OSError as error:
        raise AdminError(f"the coordinator cannot be asked: {error.strerror or error}") from None
    if not line:
        raise AdminError("the coordinator ended the connection without an answer")
    reply = orjson.loads(line)
    if "error" in reply:
        raise AdminError(reply["error"])
    return reply["ok"]
