"""A real coordinator for every test that asks."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.coordinator import CoordinatorProcess
from tests.support.lab import Lab
from tests.support.npm import openai_node  # noqa: F401


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[CoordinatorProcess]:
    with CoordinatorProcess(tmp_path / "coord", "--open-join") as running:
        yield running


@pytest.fixture
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    """A coordinator with shortened times; its options by indirect parameter."""
    with Lab(tmp_path / "coord", **getattr(request, "param", {})) as running:
        yield running
