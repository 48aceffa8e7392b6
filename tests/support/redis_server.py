"""A private Redis on a port of its own, from Debian's `redis-server` (or `valkey-server`) package."""

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from tests.support.ports import free_port


class RedisServer:
    """Start it, kill it, freeze it, start it again on the same port; it keeps nothing over that."""

    def __init__(self):
        self._binary = shutil.which("redis-server") or shutil.which("valkey-server")
        assert self._binary, "these tests need a Redis server: apt-get install redis-server"
        self.folder = Path(tempfile.mkdtemp(prefix="brain-redis-"))
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process = None

    @property
    def pid(self):
        return self._process.pid

    def start(self):
        command = ["setpriv", "--pdeathsig=KILL", self._binary, "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--save", "", "--appendonly", "no", "--dir", str(self.folder), "--loglevel", "warning"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
            except OSError:
                assert self._process.poll() is None, (self.folder / "log").read_text()
                assert time.monotonic() < deadline, "Redis does not answer"
                time.sleep(0.02)
            else:
                return self

    def kill(self):
        """Stop at once, as by kill -9."""
        self._process.send_signal(signal.SIGCONT)
        self._process.kill()
        self._process.wait()

    def freeze(self):
        """Connections stay open and nothing answers."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self._process.send_signal(signal.SIGCONT)

    def remove(self):
        if self._process is not None and self._process.poll() is None:
            self.kill()
        shutil.rmtree(self.folder)
