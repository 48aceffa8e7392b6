"""One engine process: launched on record, watched, ended with its whole group, cleaned up after.

The exit is seen through a pidfd and not through the pipe: an engine's children hold the pipe open long after its root
has gone.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from brain_node.engine import launcher, proc_table
from brain_node.engine.argv import command, environment
from brain_node.engine.group import SCRATCH_PREFIX, Leftovers, clean_up, kill_all, listens_on, members, shared_memory
from brain_node.engine.logs import EngineLog
from brain_node.engine.proc_table import ProcessFacts
from brain_node.engine.run_record import RunRecord, record_path, write_record
from brain_node.engine.spec import EngineSpec

_OUTPUT_CHUNK: Final = 65536
_DRAIN_OUTPUT_S: Final = 1.0


class EngineProcess:
    """A running engine: made by `launch`, owned by one task."""

    def __init__(self, child: "subprocess.Popen[bytes]", record: RunRecord, path: Path, log: EngineLog) -> None:
        self._child = child
        self._record = record
        self._path = path
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._exited: asyncio.Future[int] = self._loop.create_future()
        self._output_over = asyncio.Event()
        self._pidfd = os.pidfd_open(child.pid)
        self._loop.add_reader(self._pidfd, self._collect)
        assert child.stdout is not None
        os.set_blocking(child.stdout.fileno(), False)
        self._loop.add_reader(child.stdout.fileno(), self._read_output)

    @classmethod
    def launch(
        cls, spec: EngineSpec, port: int, api_key: str, run_dir: Path, log: EngineLog, base_env: Mapping[str, str]
    ) -> "EngineProcess":
        """Start `spec` on `port`.

        Its record is on the disk before the engine itself begins to run.

        Raises:
            OSError: the process cannot be made, or its record cannot be written.
        """
        # In /tmp and not in the data folder: the paths of sockets in it must stay under 108 bytes.
        scratch = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=_short_folder()))
        go_read, go_write = os.pipe()
        child: subprocess.Popen[bytes] | None = None
        try:
            words = command(spec, port)
            child = subprocess.Popen(
                [sys.executable, "-I", "-S", launcher.__file__, str(go_read), str(os.getpid()), "--", *words],
                env=environment(spec, api_key, scratch, base_env),
                cwd=scratch,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=(go_read,),
            )
            facts = proc_table.facts_of(child.pid)
            if facts is None:
                raise ProcessLookupError(f"process {child.pid} vanished")
            record = RunRecord(
                model_id=spec.model_id,
                pid=child.pid,
                start_ticks=facts.start_ticks,
                boot_id=proc_table.boot_id(),
                scratch=str(scratch),
                port=port,
                argv=words,
                agent_pid=os.getpid(),
            )
            path = record_path(run_dir, spec.slug)
            write_record(path, record)
            log.begin_run(f"{spec.model_id} pid {child.pid} port {port}: {' '.join(words)}", (api_key,))
            process = cls(child, record, path, log)
            os.write(go_write, b"g")
        except BaseException:
            if child is not None:
                child.kill()
                child.wait()
                if child.stdout is not None:
                    child.stdout.close()
            shutil.rmtree(scratch, ignore_errors=True)
            raise
        finally:
            os.close(go_read)
            os.close(go_write)
        return process

    @property
    def pid(self) -> int:
        """Of the root."""
        return self._child.pid

    @property
    def port(self) -> int:
        """The port it was told to listen on."""
        return self._record.port

    @property
    def record(self) -> RunRecord:
        """What is on the disk about it."""
        return self._record

    @property
    def running(self) -> bool:
        """Whether the root still runs."""
        return not self._exited.done()

    @property
    def code(self) -> int | None:
        """The root's exit code, minus the number of the signal that ended it; `None` while it runs."""
        return self._exited.result() if self._exited.done() else None

    def on_exit(self, callback: Callable[[int], None]) -> None:
        """Call back with the exit code once the root has gone (at once if it has)."""
        self._exited.add_done_callback(lambda exited: callback(exited.result()))

    async def look(self, *, shared_memory_too: bool = True) -> int:
        """Look at the group; gives the number of its processes that are stopped.

        Args:
            shared_memory_too: note as well what it has in /dev/shm, which costs a look at all its mappings; engines
                make that while they start.
        """
        group = await asyncio.to_thread(members, self._record)
        if shared_memory_too:
            await self._note_shared_memory(group)
        return sum(facts.state in "Tt" for facts in group)

    async def _note_shared_memory(self, group: list[ProcessFacts]) -> None:
        names = await asyncio.to_thread(shared_memory, group)
        known = set(self._record.shared_memory)
        if not names <= known:
            self._record = replace(self._record, shared_memory=tuple(sorted(known | names)))
            with contextlib.suppress(OSError):  # a full disk costs us a tidy /dev/shm, not the engine
                await asyncio.to_thread(write_record, self._path, self._record)

    async def owns_listener(self) -> bool | None:
        """Whether it is this engine that listens on its port; `None` when that cannot be told."""
        return await asyncio.to_thread(listens_on, self._record, self._record.port)

    async def end(self, term_grace_s: float) -> Leftovers:
        """End the whole group, clean up, and say what is left (nothing, if all goes well).

        Args:
            term_grace_s: how long the root may take to go by itself after SIGTERM; 0 kills at once. An engine with
                open streams may hang for good after SIGTERM, and one that loads ignores it.
        """
        await self.look()
        if self.running and term_grace_s > 0:
            with contextlib.suppress(ProcessLookupError):
                self._child.send_signal(signal.SIGTERM)
            await asyncio.wait([self._exited], timeout=term_grace_s)
        stubborn = await asyncio.to_thread(kill_all, self._record)
        if not stubborn:
            await asyncio.wait([self._exited], timeout=5.0)
        # With the last process the pipe closes; what was said last is often the cause.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_OUTPUT_S):
                await self._output_over.wait()
        self._release()
        files = await asyncio.to_thread(clean_up, self._record)
        if not stubborn:
            try:
                self._path.unlink(missing_ok=True)
            except OSError:  # a disk that takes no writes any more
                files = (*files, str(self._path))
        return Leftovers(stubborn, files)

    def _collect(self) -> None:
        code = self._child.poll()
        if code is None:
            return
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._pidfd = -1
        if not self._exited.done():
            self._exited.set_result(code)

    def _read_output(self) -> None:
        assert self._child.stdout is not None
        try:
            data = os.read(self._child.stdout.fileno(), _OUTPUT_CHUNK)
        except BlockingIOError:
            return
        if data:
            self._log.feed(data)
        else:
            self._stop_reading()

    def _stop_reading(self) -> None:
        if self._child.stdout is not None and not self._child.stdout.closed:
            self._loop.remove_reader(self._child.stdout.fileno())
            self._child.stdout.close()
        self._log.flush()
        self._output_over.set()

    def _release(self) -> None:
        self._stop_reading()
        if self._pidfd >= 0 and self.running:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1


def _short_folder() -> str:
    folder = tempfile.gettempdir()
    return folder if len(folder) <= 40 else "/tmp"  # noqa: S108
