"""One job on one engine, as the engine's supervision sees it: signs of life, and an end."""

from collections.abc import Callable

from brain_node.engine.vitality import Vitality


class EngineJob:
    """One job on one engine process; late words about a process that is gone change nothing."""

    __slots__ = ("_changed", "_clock", "_over", "_vitality", "progressed")

    def __init__(self, vitality: Vitality, clock: Callable[[], float], changed: Callable[[], None]) -> None:
        self._vitality = vitality
        self._clock = clock
        self._changed = changed
        self._over = False
        self.progressed = False
        """Whether any of the answer came."""
        vitality.job_started(clock())

    def progress(self) -> None:
        """Bytes of the answer came. Called for every read."""
        self.progressed = True
        self._vitality.job_progress(self._clock())

    def finished(self, *, ok: bool) -> None:
        """The job is over; calling it again changes nothing.

        Args:
            ok: the engine answered as it should. A job that failed, or was given up without output, is not ok: an
                idle engine is then asked for a token at once.
        """
        if not self._over:
            self._over = True
            self._vitality.job_finished(self._clock(), ok=ok)
            self._changed()
