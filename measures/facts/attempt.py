"""Facts of an attempt, put together from its events: trials, calls, memory, KV pool. No metric here.

All times are nanoseconds of the runtime's own monotonic clock.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from contract.events import (
    CallArrived,
    CallFailed,
    CallFinished,
    Conditions,
    Event,
    KvSampled,
    MemoryBudgeted,
    MemorySampled,
    Stream,
)
from contract.failures import FailureReason
from measures.errors import AnalysisInputError

AttemptEvents = Mapping[Stream, Iterable[Event]]
"""The events of each stream in their order; a stream may be missing. Of the log, block events are enough."""


class ImpossibleEventsError(AnalysisInputError):
    """Events contradict each other, e.g. a token before its call arrived: no metric may come of them."""


class TrialStatus(StrEnum):
    """How a trial ended. INTERRUPTED: it began and its end is not among the events."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


THERMAL_ORDER = ("unknown", "nominal", "fair", "serious", "critical")
"""Coolest first; an unknown state says nothing."""


@dataclass(frozen=True, slots=True)
class CallFacts:
    """One try of one call. token_ns: when each output token came; at most one of `failed`, `finished`."""

    arrived: CallArrived
    admitted_ns: int | None
    token_ns: tuple[int, ...]
    finished: CallFinished | None
    failed: CallFailed | None
    preemptions: int

    @property
    def agent(self) -> str:
        """The agent that made the call."""
        return self.arrived.agent

    @property
    def call(self) -> int:
        """The call's number within its agent."""
        return self.arrived.call


@dataclass(frozen=True, slots=True)
class TrialConditions:
    """Conditions of a trial, from just before its start to its end; None where nothing told them.

    thermal_state: the hottest. battery_percent: the lowest. charging: None too when it changed meanwhile.
    low_power_mode: whether it was ever on.
    """

    thermal_state: str = "unknown"
    battery_percent: float | None = None
    charging: bool | None = None
    low_power_mode: bool | None = None


@dataclass(frozen=True, slots=True)
class TrialFacts:
    """One trial, with what it was measured under. blocks_peak: None without a whole trace of the pool."""

    trial: int
    arm: str
    pair: int | None
    warmup: bool
    started_ns: int
    finished_ns: int | None
    status: TrialStatus
    reason: FailureReason | None
    calls: tuple[CallFacts, ...]
    memory: tuple[MemorySampled, ...]
    kv: tuple[KvSampled, ...]
    blocks_peak: int | None
    memory_warnings: int
    conditions: TrialConditions

    @property
    def completed(self) -> bool:
        """Only a completed trial has times that mean anything."""
        return self.status is TrialStatus.COMPLETED

    @property
    def above_nominal(self) -> bool:
        """The device was warm: its times are not those of a cool one."""
        return THERMAL_ORDER.index(self.conditions.thermal_state) > THERMAL_ORDER.index("nominal")


@dataclass(frozen=True, slots=True)
class FailureNote:
    """Something that went wrong in the attempt, as an event told it.

    is_end: an agent, the runtime or the attempt ended with this reason, which may only repeat what was told.
    """

    reason: FailureReason
    detail: str
    trial: int | None = None
    is_end: bool = False


@dataclass(frozen=True, slots=True)
class AttemptFacts:
    """All of an attempt. opened_ns: its first event; None when nothing came yet. budgets: by arm."""

    opened_ns: int | None
    conditions: Conditions | None
    budgets: Mapping[str, MemoryBudgeted]
    trials: tuple[TrialFacts, ...]
    failure_notes: tuple[FailureNote, ...] = field(default=())

    def measured(self, arm: str) -> tuple[TrialFacts, ...]:
        """The arm's trials that count, warm-ups left out."""
        return tuple(trial for trial in self.trials if trial.arm == arm and not trial.warmup)
