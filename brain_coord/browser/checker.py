"""Checks of products on threads of their own: they are seconds of arithmetic, and the event loop has streams to serve."""

import asyncio
import secrets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from brain_coord.browser.blocks import Block
from brain_coord.browser.product_check import fault_in
from brain_coord.browser.u32 import U32, seeded

THREADS = 2


class Operands(Protocol):
    """The two matrices of a product."""

    @property
    def seed(self) -> int | None:
        """What a tab needs to make them itself; `None` when they have to be sent."""

    def parts(self, block: Block) -> tuple[U32, U32]:
        """The rows and the columns that a block needs."""


@dataclass(frozen=True, slots=True)
class Seeded:
    """Operands made from a seed."""

    seed: int
    rows: int
    inner: int
    columns: int

    def parts(self, block: Block) -> tuple[U32, U32]:
        """Made anew each time; nothing is kept."""
        return (
            seeded(self.seed, "a", range(block.row, block.row + block.rows), range(self.inner), self.inner),
            seeded(self.seed, "b", range(self.inner), range(block.column, block.column + block.columns), self.columns),
        )


@dataclass(frozen=True, slots=True)
class Uploaded:
    """Operands that the client sent."""

    a: U32
    b: U32

    @property
    def seed(self) -> int | None:
        """There is none."""
        return None

    def parts(self, block: Block) -> tuple[U32, U32]:
        """Views of them."""
        return self.a[block.row : block.row + block.rows], self.b[:, block.column : block.column + block.columns]


@dataclass(slots=True)
class Checker:
    """Runs checks, a few at a time."""

    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(THREADS, "product-check"))

    async def fault_in(self, operands: Operands, block: Block, claimed: bytes) -> str | None:
        """Why a claimed block is wrong, or `None`."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, _check, operands, block, claimed)

    def close(self) -> None:
        """Let the threads go."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _check(operands: Operands, block: Block, claimed: bytes) -> str | None:
    if len(claimed) != 4 * block.rows * block.columns:
        return f"{len(claimed)} bytes came where {4 * block.rows * block.columns} belong"
    c = np.frombuffer(claimed, dtype="<u4").reshape(block.rows, block.columns)
    # The generator is seeded now, when the answer is here and can no more be changed to suit it.
    return fault_in(*operands.parts(block), c, np.random.default_rng(secrets.randbits(128)))
