"""Loops that go on for as long as the coordinator runs, also past a fault of ours."""

import asyncio

import pytest
import structlog

from brain_coord.loops import for_ever


async def test_a_loop_that_breaks_off_is_told_and_begins_again(monkeypatch):
    monkeypatch.setattr("brain_coord.loops.AGAIN_S", 0.0)
    runs = []

    async def watch():
        runs.append(1)
        if len(runs) < 3:
            raise RuntimeError("a fault of ours")

    with structlog.testing.capture_logs() as logs:
        await for_ever(watch)
    assert len(runs) == 3
    assert [entry["loop"].rpartition(".")[2] for entry in logs] == ["watch", "watch"]


async def test_a_loop_that_is_cancelled_is_over():
    begun = asyncio.Event()

    async def watch():
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(for_ever(watch))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
