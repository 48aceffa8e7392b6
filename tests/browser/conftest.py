"""One coordinator and one browser with WebGPU for the tests of a module."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser

from brain_coord.browser.models import BrowserModel, add_model
from tests.support.coordinator import CoordinatorProcess
from tests.support.qwen3 import build_known_qwen3
from tests.support.tabs import api, webgpu_browser


@dataclass
class Place:
    """A coordinator with a key, and a browser."""

    coordinator: CoordinatorProcess
    browser: Browser
    key: str

    @property
    def url(self) -> str:
        return self.coordinator.url

    def api(self) -> httpx.AsyncClient:
        return api(self.url, self.key)


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CoordinatorProcess]:
    with CoordinatorProcess(tmp_path_factory.mktemp("tabs") / "coord", "--open-join") as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(coordinator: CoordinatorProcess) -> AsyncIterator[Place]:
    async with webgpu_browser() as browser:
        yield Place(coordinator, browser, coordinator.key())


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> BrowserModel:
    """A small one in two stages."""
    folder = tmp_path_factory.mktemp("model")
    build_known_qwen3(folder / "model")
    return add_model(folder, folder / "model", "qwen/qwen3-0.6b", stages=2, replicas=2)
