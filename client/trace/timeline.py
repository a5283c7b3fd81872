"""What each event of an attempt means on the trace's tracks."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import singledispatchmethod
from typing import Protocol

from client.errors import InfrastructureError
from client.trace.agent_track import AgentTrack
from client.trace.arm_tracks import ArmTracks
from client.trace.perfetto_file import Details, PerfettoFile, Track, Unit
from contract import events as ev


class _OfAgent(Protocol):
    """What every event about a call of an agent has."""

    @property
    def t_mono_ns(self) -> int: ...

    @property
    def trial(self) -> int: ...

    @property
    def agent(self) -> str: ...

    @property
    def call(self) -> int: ...


@dataclass(slots=True)
class Counted:
    """How much of what went into the trace."""

    events: int = 0
    trials: int = 0
    calls: int = 0
    batches: int = 0
    block_events: int = 0
    prefix_hits: int = 0
    first_ns: int | None = None
    last_ns: int = 0
    is_complete: bool = False
    """The runtime's last word is among the events."""


@dataclass(slots=True)
class Timeline:
    """Draws events on `file`, in the order of their times. InfrastructureError where they contradict."""

    file: PerfettoFile
    counted: Counted = field(default_factory=Counted)
    arms: dict[str, ArmTracks] = field(default_factory=dict)
    _arm_of_trial: dict[int, str] = field(default_factory=dict)
    _runtime: Track | None = None
    _device: dict[str, Track] = field(default_factory=dict)

    def take(self, event: ev.Event) -> None:
        """One event; those that a trace has no place for are only counted."""
        counted = self.counted
        counted.events += 1
        counted.first_ns = event.t_mono_ns if counted.first_ns is None else counted.first_ns
        counted.last_ns = max(counted.last_ns, event.t_mono_ns)
        self._draw(event)

    def finish(self) -> None:
        """Closes what is still open: the attempt goes on, or was ended from outside."""
        self.file.close_slices(self.counted.last_ns)

    @singledispatchmethod
    def _draw(self, _event: ev.EventEnvelope) -> None:
        """No place on a track."""

    # --- the runtime and its trials

    @_draw.register
    def _(self, event: ev.RuntimeStage) -> None:
        track = self.file.track(f"start-up: {event.stage}", self._runtime_track())
        self.file.begin(track, max(0, event.t_mono_ns - event.duration_ns), event.stage)
        self.file.end(track, event.t_mono_ns)

    @_draw.register
    def _(self, event: ev.ConditionsRecorded) -> None:
        told = event.conditions.model_dump(mode="json", exclude={"extra"}, exclude_none=True)
        details = {name: value if type(value) is int else str(value) for name, value in told.items()}
        self.file.instant(self._runtime_track(), event.t_mono_ns, "conditions", details)

    @_draw.register
    def _(self, event: ev.MemoryBudgeted) -> None:
        details = {row.name: row.size_bytes for row in event.rows} | {"blocks": event.blocks}
        self.file.instant(self._runtime_track(), event.t_mono_ns, f"memory budget of {event.arm}", details)

    @_draw.register
    def _(self, event: ev.LogLine) -> None:
        details = {"message": event.message}
        self.file.instant(self._runtime_track(), event.t_mono_ns, f"log: {event.level}", details)

    @_draw.register
    def _(self, event: ev.RuntimeFinished) -> None:
        self.counted.is_complete = True
        details = {"reason": event.reason or "", "detail": event.detail}
        self.file.instant(self._runtime_track(), event.t_mono_ns, f"runtime {event.status}", details)

    @_draw.register
    def _(self, event: ev.TrialStarted) -> None:
        self.counted.trials += 1
        if event.arm not in self.arms:
            self.arms[event.arm] = ArmTracks(self.file, event.arm)
        self._arm_of_trial[event.trial] = event.arm
        kind = "warm-up" if event.warmup else "trial" if event.pair is None else f"pair {event.pair}"
        name = f"trial {event.trial} ({kind})"
        self.file.begin(self.arms[event.arm].trials, event.t_mono_ns, name)

    @_draw.register
    def _(self, event: ev.TrialFinished) -> None:
        arm = self._arm(event.trial)
        if event.reason is not None:
            self.file.instant(arm.trials, event.t_mono_ns, f"{event.status}: {event.reason}")
        arm.trial_ended(event.t_mono_ns)

    # --- agents

    @_draw.register
    def _(self, event: ev.CallArrived) -> None:
        self.counted.calls += 1
        self._agent(event).arrived(event.t_mono_ns, event.call, {"prompt_tokens": event.prompt_tokens})

    @_draw.register
    def _(self, event: ev.CallAdmitted) -> None:
        self._agent(event).computing(event.t_mono_ns, {"cached_tokens": event.cached_tokens})

    @_draw.register
    def _(self, event: ev.TokenEmitted) -> None:
        self._agent(event).token(event.t_mono_ns)

    @_draw.register
    def _(self, event: ev.CallFinished) -> None:
        details = {
            "finish_reason": event.finish_reason,
            "cached_tokens": event.cached_tokens,
            "computed_tokens": event.computed_tokens,
            "output_tokens": event.output_tokens,
        }
        self._agent(event).ended(event.t_mono_ns, details)

    @_draw.register
    def _(self, event: ev.CallFailed) -> None:
        agent = self._agent(event)
        agent.instant(event.t_mono_ns, f"failed: {event.reason}", {"detail": event.detail})
        agent.ended(event.t_mono_ns, {"failed": event.reason})

    @_draw.register
    def _(self, event: ev.SequencePreempted) -> None:
        self._agent(event).preempted(event.t_mono_ns, {"dropped_tokens": event.dropped_tokens})

    @_draw.register
    def _(self, event: ev.SequenceResumed) -> None:
        self._agent(event).computing(event.t_mono_ns, {"recomputed_tokens": event.recomputed_tokens})

    @_draw.register
    def _(self, event: ev.ToolWaitStarted) -> None:
        self._agent(event).tool_started(event.t_mono_ns, event.tool)

    @_draw.register
    def _(self, event: ev.ToolWaitFinished) -> None:
        self._agent(event).leave(event.t_mono_ns)

    @_draw.register
    def _(self, event: ev.AgentRetried) -> None:
        self._agent(event).instant(event.t_mono_ns, f"retry {event.retry}", {"reason": event.reason})

    @_draw.register
    def _(self, event: ev.AgentFinished) -> None:
        agent = self._arm(event.trial).agent(event.agent)
        agent.leave(event.t_mono_ns)
        agent.instant(event.t_mono_ns, f"agent {event.status}", {"reason": event.reason or ""})

    @_draw.register
    def _(self, event: ev.ContaminationFound) -> None:
        details = {"position": event.position, "expected_token": event.expected_token}
        self._agent(event).instant(event.t_mono_ns, "contamination", details)

    @_draw.register
    def _(self, event: ev.PrefixHit) -> None:
        self.counted.prefix_hits += 1
        details = {"tail_tokens": event.tail_tokens}
        name = f"prefix hit: {event.hit_tokens} of {event.queried_tokens} tokens"
        self._agent(event).instant(event.t_mono_ns, name, details)

    # --- batches and blocks

    @_draw.register
    def _(self, event: ev.BatchExecuted) -> None:
        self.counted.batches += 1
        self._arm(event.trial).ran(event)

    @_draw.register
    def _(self, event: ev.BlocksAllocated) -> None:
        self._blocks(event, f"{len(event.blocks)} allocated", event.blocks)

    @_draw.register
    def _(self, event: ev.BlocksShared) -> None:
        self._blocks(event, f"{len(event.blocks)} shared", event.blocks)

    @_draw.register
    def _(self, event: ev.BlocksReleased) -> None:
        self._blocks(event, f"{len(event.blocks)} released", event.blocks)

    @_draw.register
    def _(self, event: ev.BlockCopied) -> None:
        self._blocks(event, f"{event.tokens} tokens copied", [event.source, event.target])

    @_draw.register
    def _(self, event: ev.BlockEvicted) -> None:
        self.counted.block_events += 1
        track = self._arm(event.trial).blocks
        self.file.instant(track, event.t_mono_ns, "1 evicted", {"blocks": [event.block]})

    # --- the device

    @_draw.register
    def _(self, event: ev.KvSampled) -> None:
        self._arm(event.trial).sampled(event)

    @_draw.register
    def _(self, event: ev.MemorySampled) -> None:
        self._measured("footprint", Unit.BYTES, event.t_mono_ns, event.footprint_bytes)
        headroom = event.available_bytes
        if headroom is None and event.limit_bytes is not None:
            headroom = max(0, event.limit_bytes - event.footprint_bytes)
        if headroom is not None:
            self._measured("headroom", Unit.BYTES, event.t_mono_ns, headroom)

    @_draw.register
    def _(self, event: ev.BatterySampled) -> None:
        self._measured("battery (percent)", Unit.COUNT, event.t_mono_ns, event.level_percent)

    @_draw.register
    def _(self, event: ev.ThermalSampled) -> None:
        self.file.instant(self._runtime_track(), event.t_mono_ns, f"thermal state: {event.state}")

    @_draw.register
    def _(self, event: ev.MemoryWarned) -> None:
        self.file.instant(self._runtime_track(), event.t_mono_ns, f"memory warning: {event.level}")

    def _measured(self, name: str, unit: Unit, t_ns: int, value: float) -> None:
        if name not in self._device:
            self._device[name] = self.file.counter(name, self.file.root, unit)
        self.file.value(self._device[name], t_ns, value)

    def _blocks(self, event: _OfAgent, name: str, blocks: Sequence[int]) -> None:
        self.counted.block_events += 1
        details: Details = {"agent": event.agent, "call": event.call, "blocks": blocks}
        self.file.instant(self._arm(event.trial).blocks, event.t_mono_ns, name, details)

    def _runtime_track(self) -> Track:
        self._runtime = self._runtime or self.file.track("runtime", self.file.root)
        return self._runtime

    def _agent(self, event: _OfAgent) -> AgentTrack:
        return self._arm(event.trial).agent(event.agent)

    def _arm(self, trial: int) -> ArmTracks:
        if trial not in self._arm_of_trial:
            raise InfrastructureError(
                "events-contradict", f"an event is of trial {trial}, which is not among those that started"
            )
        return self.arms[self._arm_of_trial[trial]]
