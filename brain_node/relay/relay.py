"""Takes jobs from slots and gives each an engine, or refuses it at once."""

from collections.abc import Sequence
from typing import Final

import structlog

from brain_node.contract.limits import FRAME_BYTES
from brain_node.contract.messages import Job
from brain_node.link.slot import Line, RunningJob
from brain_node.relay.deadlines import Deadlines
from brain_node.relay.engine_pool import EnginePool
from brain_node.relay.job import RelayedJob
from brain_node.relay.lease import Engines

log = structlog.get_logger(__name__)

JOB_PATHS: Final = frozenset(
    "/v1/" + name
    for name in (
        "chat/completions",
        "completions",
        "responses",
        "messages",
        "messages/count_tokens",
        "embeddings",
        "rerank",
        "score",
        "audio/transcriptions",
        "audio/translations",
    )
)
"""What a coordinator may ask of an engine. Everything else an engine offers (loading adapters, administration) stays
the operator's own, whatever a coordinator says."""


class Relay:
    """Runs jobs on engines.

    Args:
        engines: who gives engines to jobs.
    """

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self._pool = EnginePool()
        self._deadlines = Deadlines()
        self.frame_bytes = FRAME_BYTES
        """Largest frame sent; the coordinator may ask for less in `welcome`."""

    def close(self) -> None:
        """Close the connections to engines that wait for a job, and forget when running jobs have to be over."""
        self._pool.close()
        self._deadlines.close()

    def start(self, job: Job, body: Sequence[bytes], line: Line) -> RunningJob | None:
        """Run one job, or refuse it on `line` at once."""
        if job.path not in JOB_PATHS:
            log.warning("path_not_allowed", job=job.id, path=job.path)
            line.end("bad_job")
            return None
        lease = self._engines.claim(job)
        if isinstance(lease, str):
            line.end(lease)
            return None
        running = RelayedJob(job, body, lease, line, self._pool, self._deadlines, self.frame_bytes)
        try:
            running.start()
        except Exception:
            log.exception("job_failed", job=job.id)
            running.failed()
        return running
