"""The recorder and the emitter of a measured attempt: they tell of each trial, and can stay silent in it."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from contract.events import Producer, TrialFinished, TrialStarted
from contract.events.envelope import EventEnvelope
from contract.failures import FailureReason
from contract.jobs import TrialSpec
from runtime.engine.generator import CallKey, Fact, KVState
from runtime.measured.emit import EventEmitter
from runtime.measured.graph import EndAgent, FinishToolWait, RetryCall, StartToolWait
from runtime.measured.record import TrialRecorder

WITHOUT_EVENTS: Final = "paged-without-events"
"""An arm of this name is the paged arm, but of its trials only start and end are recorded."""


@dataclass(frozen=True, slots=True)
class EndedTrial:
    """Start and end on the monotonic clock. events_ns: processor time of its events, None where unknown."""

    arm: str
    start_ns: int
    end_ns: int
    events_ns: int | None


TrialEnded = Callable[[EndedTrial], None]


class BenchEmitter(EventEmitter):
    """Writes as every attempt's emitter does, unless it is muted; calls `trial_ended` after each trial."""

    def __init__(self, path: Path, attempt_id: str, producer: Producer, trial_ended: TrialEnded) -> None:
        self.is_muted = False
        self._trial_ended = trial_ended
        self._running: TrialStarted | None = None
        self._producing_ns = 0
        self._writer_before_ns: int | None = None
        super().__init__(path, attempt_id, producer)

    @contextmanager
    def producing(self) -> Iterator[None]:
        """What runs inside is counted as work for events."""
        began_ns = time.thread_time_ns()
        try:
            yield
        finally:
            self._producing_ns += time.thread_time_ns() - began_ns

    def emit(self, event: EventEnvelope) -> None:
        """Drops the event while muted."""
        if not self.is_muted:
            super().emit(event)
        if isinstance(event, TrialStarted):
            self._running = event
            self._producing_ns, self._writer_before_ns = 0, self._writer_ns()
        elif isinstance(event, TrialFinished) and self._running is not None:
            started = self._running
            self._trial_ended(EndedTrial(started.arm, started.t_mono_ns, event.t_mono_ns, self._events_ns()))

    def _events_ns(self) -> int | None:
        now_ns = self._writer_ns()
        if now_ns is None or self._writer_before_ns is None:
            return None
        return self._producing_ns + now_ns - self._writer_before_ns

    def _writer_ns(self) -> int | None:
        """Processor time of the writer so far; None where the system has no clock for a thread."""
        if not hasattr(time, "pthread_getcpuclockid") or self._thread.ident is None:
            return None
        return time.clock_gettime_ns(time.pthread_getcpuclockid(self._thread.ident))


class BenchRecorder(TrialRecorder):
    """In the arm without events nothing is built and nothing is queued between start and end."""

    def __init__(
        self, emitter: EventEmitter, spec: TrialSpec, decode: Callable[[Sequence[int]], str]
    ) -> None:
        if not isinstance(emitter, BenchEmitter):
            raise TypeError("a measured attempt records through a BenchEmitter")
        super().__init__(emitter, spec, decode)
        self._emitter = emitter
        self._is_silent = spec.arm == WITHOUT_EVENTS

    def started(self) -> None:
        """The trial's wall time begins; the silence too."""
        super().started()
        self._emitter.is_muted = self._is_silent

    def finished(
        self, status: Literal["completed", "failed", "cancelled"], reason: FailureReason | None
    ) -> None:
        """The trial's wall time ends, and the silence."""
        self._emitter.is_muted = False
        super().finished(status, reason)

    def arrived(self, key: CallKey, prompt_tokens: int) -> None:
        """Forwarded and timed, unless muted."""
        if not self._is_silent:
            with self._emitter.producing():
                super().arrived(key, prompt_tokens)

    def decided(self, decision: StartToolWait | FinishToolWait | RetryCall | EndAgent) -> None:
        """Forwarded and timed, unless muted."""
        if not self._is_silent:
            with self._emitter.producing():
                super().decided(decision)

    def happened(self, fact: Fact) -> None:
        """Forwarded and timed, unless muted."""
        if not self._is_silent:
            with self._emitter.producing():
                super().happened(fact)

    def kv(self, state: KVState | None) -> None:
        """Forwarded and timed, unless muted."""
        if not self._is_silent:
            with self._emitter.producing():
                super().kv(state)
