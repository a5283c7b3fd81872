"""The recorder and the emitter of a measured attempt: they tell of each trial, and can stay silent in it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Literal

from contract.events import Producer, TrialFinished, TrialStarted
from contract.events.envelope import EventEnvelope
from contract.failures import FailureReason
from contract.jobs import TrialSpec
from runtime.engine.arm import Fact, KVState
from runtime.engine.emit import EventEmitter
from runtime.engine.graph import CallKey, EndAgent, FinishToolWait, RetryCall, StartToolWait
from runtime.engine.record import TrialRecorder

WITHOUT_EVENTS: Final = "paged-without-events"
"""An arm of this name is the paged arm, but of its trials only start and end are recorded."""

TrialEnded = Callable[[str, int, int], None]
"""Arm, start and end on the monotonic clock."""


class BenchEmitter(EventEmitter):
    """Writes as every attempt's emitter does, unless it is muted; calls `trial_ended` after each trial."""

    def __init__(self, path: Path, attempt_id: str, producer: Producer, trial_ended: TrialEnded) -> None:
        self.is_muted = False
        self._trial_ended = trial_ended
        self._running: TrialStarted | None = None
        super().__init__(path, attempt_id, producer)

    def emit(self, event: EventEnvelope) -> None:
        """Drops the event while muted."""
        if not self.is_muted:
            super().emit(event)
        if isinstance(event, TrialStarted):
            self._running = event
        elif isinstance(event, TrialFinished) and self._running is not None:
            self._trial_ended(self._running.arm, self._running.t_mono_ns, event.t_mono_ns)


class BenchRecorder(TrialRecorder):
    """In the arm without events nothing is built and nothing is queued between start and end."""

    def __init__(
        self, emitter: EventEmitter, spec: TrialSpec, decode: Callable[[Sequence[int]], str]
    ) -> None:
        super().__init__(emitter, spec, decode)
        self._emitter = emitter
        self._is_silent = spec.arm == WITHOUT_EVENTS

    def started(self) -> None:
        """The trial's wall time begins; the silence too."""
        super().started()
        self._mute(self._is_silent)

    def finished(
        self, status: Literal["completed", "failed", "cancelled"], reason: FailureReason | None
    ) -> None:
        """The trial's wall time ends, and the silence."""
        self._mute(False)
        super().finished(status, reason)

    def arrived(self, key: CallKey, prompt_tokens: int) -> None:
        """Nothing in silence."""
        if not self._is_silent:
            super().arrived(key, prompt_tokens)

    def decided(self, decision: StartToolWait | FinishToolWait | RetryCall | EndAgent) -> None:
        """Nothing in silence."""
        if not self._is_silent:
            super().decided(decision)

    def happened(self, fact: Fact) -> None:
        """Nothing in silence."""
        if not self._is_silent:
            super().happened(fact)

    def kv(self, state: KVState | None) -> None:
        """Nothing in silence."""
        if not self._is_silent:
            super().kv(state)

    def _mute(self, is_muted: bool) -> None:  # noqa: FBT001 - the state to set, not a second behaviour
        if isinstance(self._emitter, BenchEmitter):
            self._emitter.is_muted = is_muted
