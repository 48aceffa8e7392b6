"""Compute jobs as their clients meet them: one end, told once its receipt is durable, however often they are given up."""

import asyncio
from types import SimpleNamespace

import pytest

from brain_coord.browser.jobs import ComputeJob, Dispatcher, JobBook
from brain_coord.browser.tabs import Tabs
from brain_coord.browser.unit import Product
from brain_coord.measure.lag import LoopLag


class Receipt:
    """A commit that takes until it is told to go on."""

    def __init__(self, error: Exception | None = None) -> None:
        self.begun, self.goes_on = asyncio.Event(), asyncio.Event()
        self.times = 0
        self._error = error

    async def ended(self, job: ComputeJob) -> None:
        self.times += 1
        self.begun.set()
        await self.goes_on.wait()
        if self._error is not None:
            raise self._error


@pytest.fixture
def book():
    return JobBook(Dispatcher(Tabs(15.0, LoopLag()), SimpleNamespace()))


@pytest.fixture
def job():
    return ComputeJob(Product(SimpleNamespace(seed=1), 8, 8, 8), 1, key_id="k", redundancy=1)


async def test_giving_a_job_up_again_does_not_disturb_its_receipt(book, job):
    receipt = Receipt()
    task = book.start(job, receipt.ended)
    await asyncio.sleep(0)
    assert book.cancel(job)
    await receipt.begun.wait()
    assert not book.cancel(job)
    assert job.status == "running", "nobody hears of an end that no receipt holds"
    watcher = asyncio.create_task(job.after(job.version))
    receipt.goes_on.set()
    await asyncio.wait({task})
    await watcher
    assert (job.status, receipt.times) == ("cancelled", 1)
    assert not book.cancel(job)


async def test_a_shutdown_waits_for_the_receipt_of_a_job_that_is_over(book, job):
    receipt = Receipt()
    book.start(job, receipt.ended)
    await asyncio.sleep(0)
    book.cancel(job)
    await receipt.begun.wait()
    drained = asyncio.create_task(book.drain(0.0))
    await asyncio.wait({drained}, timeout=0.05)
    assert not drained.done()
    receipt.goes_on.set()
    await drained
    assert (job.status, receipt.times) == ("cancelled", 1)
    assert job.reason == "cancelled: the client gave it up"


async def test_a_job_whose_receipt_fails_ends_all_the_same(book, job):
    receipt = Receipt(RuntimeError("no"))
    task = book.start(job, receipt.ended)
    await asyncio.sleep(0)
    book.cancel(job)
    receipt.goes_on.set()
    await asyncio.wait({task})
    assert isinstance(task.exception(), RuntimeError)
    assert job.status == "cancelled"
