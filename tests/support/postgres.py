"""A private PostgreSQL server on a unix socket in a folder of its own, from Debian's `postgresql` package."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg

_USER = "brain"


def binaries() -> Path:
    """The newest server installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    assert found, "these tests need a PostgreSQL server: apt-get install postgresql"
    return found[-1].parent


class PostgresServer:
    """Start it, stop it, freeze it; databases are made on demand."""

    def __init__(self):
        self._bin = binaries()
        self.folder = Path(tempfile.mkdtemp(prefix="brain-pg-"))  # short: a socket's path has a limit of 107 bytes
        self._data = self.folder / "data"
        self._process = None
        self._databases = 0
        # The server refuses to run as root, as containers often do.
        self._as = []
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            self._as = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        self.folder.chmod(0o755)
        self._run("initdb", "-D", str(self._data), "-U", _USER, "-A", "trust", "-E", "UTF8", "--no-sync")

    def _run(self, program, *arguments):
        command = [*self._as, str(self._bin / program), *arguments]
        subprocess.run(command, check=True, capture_output=True, cwd=self.folder)

    def start(self):
        command = ["setpriv", *self._as[1:], "--pdeathsig=INT"]  # no server outlives a test run that was killed
        command += [str(self._bin / "postgres"), "-D", str(self._data), "-k", str(self.folder)]
        command += ["-c", "listen_addresses=", "-c", "fsync=off"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        deadline = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self._conninfo("postgres"), connect_timeout=5).close()
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError((self.folder / "log").read_text()) from None
                time.sleep(0.02)
            else:
                return self

    def kill(self):
        """Stop at once, as by a power cut: no clean shutdown."""
        self._signal(signal.SIGCONT)
        for process in self._family():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        (self._data / "postmaster.pid").unlink(missing_ok=True)

    def freeze(self):
        """Let every process of the server stand still: connections stay open and nothing answers."""
        self._signal(signal.SIGSTOP)

    def thaw(self):
        self._signal(signal.SIGCONT)

    def read_only(self, on):
        """Whether transactions may read only, also those of connections that are open; known to them in a moment."""
        with psycopg.connect(self._conninfo("postgres"), autocommit=True) as connection:
            connection.execute("SET default_transaction_read_only = off")
            connection.execute(f"ALTER SYSTEM SET default_transaction_read_only = {'on' if on else 'off'}")
            connection.execute("SELECT pg_reload_conf()")
        while True:
            with psycopg.connect(self._conninfo("postgres"), autocommit=True) as connection:
                if connection.execute("SHOW default_transaction_read_only").fetchone() == ("on" if on else "off",):
                    return
            time.sleep(0.02)

    def remove(self):
        if self._process is not None and self._process.poll() is None:
            self.kill()
        shutil.rmtree(self.folder)

    def create_database(self):
        """A new empty database; its URL."""
        self._databases += 1
        name = f"test_{self._databases}"
        with psycopg.connect(self._conninfo("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return f"postgresql://{_USER}@/{name}?host={self.folder}"

    def _conninfo(self, database):
        return f"host={self.folder} user={_USER} dbname={database}"

    def _family(self):
        parent = psutil.Process(self._process.pid)
        return [parent, *parent.children(recursive=True)]

    def _signal(self, number):
        for process in self._family():
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)
