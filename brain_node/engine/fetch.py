"""How an engine asks for its weights, and how it is told that they cannot be had."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from brain_node.engine.causes import Cause
from brain_node.engine.view import DownloadProgress

FetchWeights = Callable[[Callable[[DownloadProgress], None]], Awaitable[Path]]
"""Fetches the weights, telling how far it is; gives their folder, or raises `FetchError`."""


class FetchError(Exception):
    """Weights could not be fetched."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause.message)
        self.cause = cause
