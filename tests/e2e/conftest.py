"""A real coordinator for every test that asks."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.coordinator import CoordinatorProcess
from tests.support.npm import openai_node  # noqa: F401


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[CoordinatorProcess]:
    with CoordinatorProcess(tmp_path / "coord", "--open-join") as running:
        yield running
