"""Fixtures for tests on a real engine: the engine environment and the known-text model, made on first use.

They lie in `.brain/` of the repository (or `$BRAIN_TEST_CACHE`), so one install serves the quick start, the tests and
every later run. Tests that use them carry `@pytest.mark.engine`.
"""

import fcntl
import os
from pathlib import Path

import pytest

from brain_node.engine.environments import ENGINES_DIR_VARIABLE, TORCH_INDEX_VARIABLE, EngineEnv, Flavour
from brain_node.engine.install import InstallOptions, install_engine
from brain_node.engine.models.smollm2 import LocalModel, fetch_smollm2
from brain_node.engine.progress import progress_for
from tests.support.models import KnownTextModel, build_known_text_model

ROOT = Path(__file__).parent.parent.parent


def test_cache() -> Path:
    """Where things that are costly to make are kept between test runs."""
    return Path(os.environ.get("BRAIN_TEST_CACHE") or ROOT / ".brain" / "test-cache").absolute()


test_cache.__test__ = False


def engines() -> Path:
    """The folder of engine environments that tests share with the quick start."""
    return Path(os.environ.get(ENGINES_DIR_VARIABLE) or ROOT / ".brain" / "engines").absolute()


@pytest.fixture(scope="session")
def engine_env() -> EngineEnv:
    """A whole CPU engine environment, installed on first use (about a minute; the installer has its own lock)."""
    index = os.environ.get(TORCH_INDEX_VARIABLE) or None
    return install_engine(InstallOptions(engines(), Flavour.CPU, torch_index=index), progress_for())


@pytest.fixture(scope="session")
def known_text_model() -> KnownTextModel:
    """The checkpoint whose every answer is the known sentence."""
    with _locked(test_cache() / "known-text.lock"):
        return build_known_text_model(test_cache() / "known-text")


@pytest.fixture(scope="session")
def smollm2_model(engine_env: EngineEnv) -> LocalModel:
    """SmolLM2-135M-Instruct, fetched on first use."""
    with _locked(test_cache() / "smollm2.lock"):
        return fetch_smollm2(engine_env, ROOT / ".brain" / "models" / "smollm2-135m-instruct", progress_for())


class _locked:  # noqa: N801
    """Holds a lock file, so that parallel test processes make a thing once."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w")

    def __enter__(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self._file.close()
