"""Events to facts: which token belongs to which call of which trial. A contradiction raises.

The runtime's streams (control, samples) share one clock. The agent's stream has another, so its events are
placed by the trial that they name and never by time.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from contract.events import (
    AgentFinished,
    CallAdmitted,
    CallArrived,
    CallFailed,
    CallFinished,
    Conditions,
    ConditionsRecorded,
    ContaminationFound,
    Event,
    KvSampled,
    MemoryBudgeted,
    MemorySampled,
    MemoryWarned,
    RuntimeExited,
    RuntimeFinished,
    SequencePreempted,
    Stream,
    TokenEmitted,
    TrialFinished,
    TrialStarted,
)
from contract.failures import FailureReason
from contract.run_end import RunEnd
from measures.facts.attempt import (
    AttemptEvents,
    AttemptFacts,
    CallFacts,
    FailureNote,
    ImpossibleEventsError,
    TrialConditions,
    TrialFacts,
    TrialStatus,
)
from measures.facts.block_ledger import BlockEvent, PeakReader
from measures.facts.conditions import ConditionReader

_CallEvent = CallAdmitted | TokenEmitted | CallFinished | CallFailed | SequencePreempted


@dataclass(slots=True)
class _CallReader:
    """The events of one try of a call."""

    arrived: CallArrived
    admitted_ns: int | None = None
    token_ns: list[int] = field(default_factory=list)
    finished: CallFinished | None = None
    failed: CallFailed | None = None
    preemptions: int = 0

    @property
    def ended(self) -> bool:
        return self.finished is not None or self.failed is not None

    def read(self, event: _CallEvent) -> None:
        self._check(event)
        match event:
            case CallAdmitted():
                # A preempted sequence is admitted again; the queue ended at the first time.
                self.admitted_ns = event.t_mono_ns if self.admitted_ns is None else self.admitted_ns
            case TokenEmitted():
                self.token_ns.append(event.t_mono_ns)
            case CallFinished():
                self.finished = event
            case CallFailed():
                self.failed = event
            case SequencePreempted():
                self.preemptions += 1

    def _check(self, event: _CallEvent) -> None:
        name = f"trial {event.trial}, agent {event.agent}, call {event.call}: {event.type}"
        if self.ended:
            raise ImpossibleEventsError(f"{name} after the call had ended")
        latest_ns = self.token_ns[-1] if self.token_ns else self.arrived.t_mono_ns
        if event.t_mono_ns < latest_ns:
            raise ImpossibleEventsError(
                f"{name} at {event.t_mono_ns} ns precedes what it must follow, at {latest_ns} ns"
            )
        if isinstance(event, TokenEmitted) and event.index != len(self.token_ns):
            raise ImpossibleEventsError(f"{name} has index {event.index}, {len(self.token_ns)} was due")
        if isinstance(event, CallFinished):
            self._check_counts(name, event)

    def _check_counts(self, name: str, event: CallFinished) -> None:
        if event.output_tokens != len(self.token_ns):
            raise ImpossibleEventsError(
                f"{name} counts {event.output_tokens} output tokens, {len(self.token_ns)} were emitted"
            )
        if event.cached_tokens > event.prompt_tokens:
            raise ImpossibleEventsError(
                f"{name} has {event.cached_tokens} cached tokens in a prompt of {event.prompt_tokens}"
            )

    def facts(self) -> CallFacts:
        return CallFacts(
            arrived=self.arrived,
            admitted_ns=self.admitted_ns,
            token_ns=tuple(self.token_ns),
            finished=self.finished,
            failed=self.failed,
            preemptions=self.preemptions,
        )


@dataclass(slots=True)
class _TrialReader:
    """The events of one trial."""

    started: TrialStarted
    finished: TrialFinished | None = None
    calls: list[_CallReader] = field(default_factory=list)
    newest: dict[tuple[str, int], _CallReader] = field(default_factory=dict)
    memory: list[MemorySampled] = field(default_factory=list)
    kv: list[KvSampled] = field(default_factory=list)
    peak: PeakReader | None = None
    memory_warnings: int = 0

    def arrive(self, event: CallArrived) -> None:
        key = (event.agent, event.call)
        earlier = self.newest.get(key)
        # A retry and the next round of a soak use the number again, once the call before has ended.
        if earlier is not None and not earlier.ended:
            raise ImpossibleEventsError(
                f"trial {event.trial}, agent {event.agent}, call {event.call} arrived twice"
            )
        self.newest[key] = _CallReader(event)
        self.calls.append(self.newest[key])

    def of_call(self, event: _CallEvent) -> _CallReader:
        try:
            return self.newest[event.agent, event.call]
        except KeyError:
            raise ImpossibleEventsError(
                f"trial {event.trial}, agent {event.agent}, call {event.call}: {event.type} of a call "
                "that never arrived"
            ) from None

    @property
    def end_ns(self) -> int | None:
        return self.finished.t_mono_ns if self.finished else None

    def facts(self, conditions: TrialConditions) -> TrialFacts:
        finished = self.finished
        return TrialFacts(
            trial=self.started.trial,
            arm=self.started.arm,
            pair=self.started.pair,
            warmup=self.started.warmup,
            started_ns=self.started.t_mono_ns,
            finished_ns=self.end_ns,
            status=TrialStatus(finished.status) if finished else TrialStatus.INTERRUPTED,
            reason=finished.reason if finished else None,
            calls=tuple(call.facts() for call in self.calls),
            memory=tuple(self.memory),
            kv=tuple(self.kv),
            blocks_peak=self.peak.result() if self.peak else None,
            memory_warnings=self.memory_warnings,
            conditions=conditions,
        )


@dataclass(slots=True)
class _AttemptReader:
    """Reads the streams of one attempt, control first."""

    opened_ns: int | None = None
    conditions: Conditions | None = None
    budgets: dict[str, MemoryBudgeted] = field(default_factory=dict)
    trials: dict[int, _TrialReader] = field(default_factory=dict)
    running: _TrialReader | None = None
    sensors: ConditionReader = field(default_factory=ConditionReader)
    failure_notes: list[FailureNote] = field(default_factory=list)

    def control(self, event: Event) -> None:
        match event:
            case TrialStarted():
                self._start(event)
            case TrialFinished():
                self._finish(event)
            case CallArrived():
                self._trial(event.trial, event.type).arrive(event)
            case CallAdmitted() | TokenEmitted() | CallFinished() | SequencePreempted():
                self._trial(event.trial, event.type).of_call(event).read(event)
            case CallFailed():
                self._trial(event.trial, event.type).of_call(event).read(event)
                where = f"agent {event.agent}, call {event.call}: {event.detail}"
                self.failure_notes.append(FailureNote(event.reason, where, event.trial))
            case ConditionsRecorded():
                self.conditions = event.conditions
            case MemoryBudgeted():
                self.budgets[event.arm] = event
            case MemoryWarned():
                if self.running is not None:
                    self.running.memory_warnings += 1
            case _:
                self.failure_notes.extend(_notes_of(event))

    def samples(self, event: Event) -> None:
        match event:
            case MemorySampled():
                self.memory(event)
            case KvSampled() if event.trial in self.trials:
                self.trials[event.trial].kv.append(event)
            case _:
                self.sensors.runtime(event)

    def log(self, event: Event) -> None:
        if isinstance(event, BlockEvent) and event.trial in self.trials:
            trial = self.trials[event.trial]
            trial.peak = trial.peak or PeakReader(trial.kv)
            trial.peak.apply(event)

    def agent(self, event: Event) -> None:
        if isinstance(event, MemorySampled):
            self.memory(event)
        self.sensors.agent(event)
        self.failure_notes.extend(_notes_of(event))

    def memory(self, event: MemorySampled) -> None:
        # While an attempt runs, a sample may be here before the control event that starts its trial.
        if event.trial in self.trials:
            self.trials[event.trial].memory.append(event)

    def trial_facts(self, trial: _TrialReader) -> TrialFacts:
        started = trial.started
        return trial.facts(
            self.sensors.of_trial(started.trial, started.t_mono_ns, trial.end_ns, self.conditions)
        )

    def _start(self, event: TrialStarted) -> None:
        if event.trial in self.trials:
            raise ImpossibleEventsError(f"trial {event.trial} started twice")
        self.running = self.trials[event.trial] = _TrialReader(event)

    def _finish(self, event: TrialFinished) -> None:
        trial = self._trial(event.trial, event.type)
        if trial.finished is not None:
            raise ImpossibleEventsError(f"trial {event.trial} finished twice")
        if event.t_mono_ns < trial.started.t_mono_ns:
            raise ImpossibleEventsError(f"trial {event.trial} finished before it started")
        trial.finished = event
        self.running = None

    def _trial(self, trial: int, kind: str) -> _TrialReader:
        try:
            return self.trials[trial]
        except KeyError:
            raise ImpossibleEventsError(f"{kind} in trial {trial}, which never started") from None


def _notes_of(event: Event) -> Iterator[FailureNote]:
    """What an event outside any call says went wrong."""
    match event:
        case AgentFinished(status="failed", reason=reason) if reason is not None:
            yield FailureNote(reason, f"agent {event.agent} ended early", event.trial, is_end=True)
        case RuntimeFinished(status="failed", reason=reason) if reason is not None:
            yield FailureNote(reason, event.detail, is_end=True)
        case ContaminationFound():
            yield FailureNote(
                FailureReason.CONTAMINATION,
                f"agent {event.agent}, position {event.position}: token {event.expected_token} was expected, "
                f"{event.found_token} found",
                event.trial,
            )
        case RuntimeExited(end=RunEnd(reason=reason) as end) if reason is not None:
            yield FailureNote(reason, end.detail)


def attempt_facts(events: AttemptEvents) -> AttemptFacts:
    """Facts of an attempt, finished or not; ImpossibleEventsError when its events contradict each other.

    Of the log stream, which is the trace and may have losses, nothing is read but the blocks of the pool.
    """
    reader = _AttemptReader()
    for event in events.get(Stream.CONTROL, ()):
        reader.opened_ns = event.t_mono_ns if reader.opened_ns is None else reader.opened_ns
        reader.control(event)
    for event in events.get(Stream.SAMPLES, ()):
        reader.samples(event)
    for event in events.get(Stream.LOG, ()):
        reader.log(event)
    for event in events.get(Stream.DEVICE_AGENT, ()):
        reader.agent(event)
    return AttemptFacts(
        opened_ns=reader.opened_ns,
        conditions=reader.conditions,
        budgets=dict(reader.budgets),
        trials=tuple(reader.trial_facts(trial) for trial in reader.trials.values()),
        failure_notes=tuple(reader.failure_notes),
    )
