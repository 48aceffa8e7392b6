"""One unit of a product on one tab: asked, timed, judged, and counted for or against the tab."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from brain_coord.browser.blocks import Block
from brain_coord.browser.checker import Checker, Operands
from brain_coord.browser.plausible import SpeedRules, too_fast
from brain_coord.browser.tab import Tab
from brain_coord.browser.tabs import Tabs
from brain_coord.browser.work import MATMUL_PATH, WorkFault, packed, run_job


@dataclass(frozen=True, slots=True)
class Product:
    """What is to be multiplied."""

    operands: Operands
    rows: int
    inner: int
    columns: int

    def body(self, block: Block) -> bytes:
        """What a tab needs for one block."""
        header: dict[str, Any] = {
            "rows": block.rows,
            "inner": self.inner,
            "columns": block.columns,
            "row": block.row,
            "column": block.column,
            "width": self.columns,
        }
        seed = self.operands.seed
        if seed is not None:
            return packed({**header, "seed": [seed & 0xFFFFFFFF, seed >> 32]})
        a, b = self.operands.parts(block)
        return packed(header, a.astype("<u4").tobytes() + np.ascontiguousarray(b, dtype="<u4").tobytes())


@dataclass(frozen=True, slots=True)
class UnitRunner:
    """Runs units and judges them; the same for the join challenge and for customers' work."""

    tabs: Tabs
    checker: Checker
    rules: SpeedRules

    async def run(
        self, tab: Tab, product: Product, block: Block, *, timeout_s: float, known_ops_s: float | None
    ) -> tuple[bytes, float]:
        """The checked numbers of a block, and how long they took; the tab must be reserved.

        Raises:
            WorkFault: no answer, or one that did not stand the check.
        """
        body = product.body(block)
        size = 4 * block.rows * block.columns
        reply = await run_job(self.tabs, tab, MATMUL_PATH, body, timeout_s=timeout_s, most_bytes=size)
        if reply.status != 200:
            raise WorkFault("failed", f"the tab answered {reply.status}")
        operations = block.operations(product.inner)
        if (sentence := too_fast(operations, reply.elapsed_s, known_ops_s, self.rules)) is not None:
            raise WorkFault("too_fast", sentence)
        if (sentence := await self.checker.fault_in(product.operands, block, reply.body)) is not None:
            raise WorkFault("wrong_result", sentence)
        return reply.body, reply.elapsed_s
