"""The events of an attempt's file, sorted by trial."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contract.events import (
    BatchExecuted,
    CallArrived,
    CallFinished,
    Conditions,
    ConditionsRecorded,
    Event,
    KvSampled,
    MemoryBudgeted,
    MemorySampled,
    TokenEmitted,
    TrialFinished,
    TrialStarted,
    parse_event,
)

Key = tuple[str, int]
"""Agent and call."""


@dataclass(frozen=True, slots=True)
class DecodeStep:
    """A step in which sequences only decoded. context_tokens: KV that each of them reads."""

    context_tokens: tuple[int, ...]
    duration_ns: int


@dataclass(frozen=True, slots=True)
class PoolInUse:
    """A moment of the pool. sequence_tokens: KV of each sequence that runs, nothing else is in use."""

    blocks_used: int
    sequence_tokens: tuple[int, ...]


@dataclass(slots=True)
class TrialEvents:
    """One trial. token_ns, token_ids and arrived_ns by call, calls in the order of their arrival."""

    started: TrialStarted
    finished: TrialFinished | None = None
    prompt_tokens: dict[Key, int] = field(default_factory=dict)
    token_ns: dict[Key, list[int]] = field(default_factory=dict)
    token_ids: dict[Key, list[int]] = field(default_factory=dict)
    calls: dict[Key, CallFinished] = field(default_factory=dict)
    footprint_peak_bytes: int = 0
    """Not the samples themselves: they would stay in the footprint of this process, which is measured."""
    decode_steps: list[DecodeStep] = field(default_factory=list)
    blocks_peak: int | None = None
    """Most blocks in use at a time; None for an arm without a pool."""
    pools: list[PoolInUse] = field(default_factory=list)
    """The pool at every sample during which all sequences decoded."""

    def take(self, event: Event) -> None:
        """Another event of this trial, in the order of the file."""
        match event:
            case CallArrived():
                key = (event.agent, event.call)
                self.prompt_tokens[key] = event.prompt_tokens
                self.token_ns[key], self.token_ids[key] = [], []
            case TokenEmitted():
                self.token_ns[event.agent, event.call].append(event.t_mono_ns)
                self.token_ids[event.agent, event.call].append(event.token_id)
            case CallFinished():
                self.calls[event.agent, event.call] = event
            case BatchExecuted():
                self._step(event)
            case KvSampled():
                self._pool(event)
            case MemorySampled():
                self.footprint_peak_bytes = max(self.footprint_peak_bytes, event.footprint_bytes)
            case TrialFinished():
                self.finished = event

    def _step(self, event: BatchExecuted) -> None:
        # A step's event stands before those of the tokens that it made.
        if not event.prefill:
            contexts = tuple(self._context((member.agent, member.call)) for member in event.decode)
            self.decode_steps.append(DecodeStep(contexts, event.duration_ns))

    def _pool(self, event: KvSampled) -> None:
        self.blocks_peak = max(self.blocks_peak or 0, event.blocks_used)
        decoding = [key for key, made in self.token_ns.items() if made and key not in self.calls]
        if decoding and len(decoding) == event.sequences_running:
            # The newest token of a sequence has no KV yet.
            held = tuple(self._context(key) - 1 for key in decoding)
            self.pools.append(PoolInUse(event.blocks_used, held))

    def _context(self, key: Key) -> int:
        return self.prompt_tokens[key] + len(self.token_ns[key])


@dataclass(frozen=True, slots=True)
class AttemptEvents:
    """What one file held. budgets by arm."""

    conditions: Conditions
    budgets: dict[str, MemoryBudgeted]
    trials: list[TrialEvents]


def read_attempt(path: Path) -> AttemptEvents:
    """EventLineError for a line that is no event; ValueError when the file has no conditions."""
    conditions: Conditions | None = None
    budgets: dict[str, MemoryBudgeted] = {}
    trials: dict[int, TrialEvents] = {}
    for event in _events(path):
        number: Any = getattr(event, "trial", None)
        if isinstance(event, ConditionsRecorded):
            conditions = event.conditions
        elif isinstance(event, MemoryBudgeted):
            budgets[event.arm] = event
        elif isinstance(event, TrialStarted):
            trials[event.trial] = TrialEvents(event)
        elif number in trials:
            trials[number].take(event)
    if conditions is None:
        raise ValueError(f"{path}: the attempt recorded no conditions")
    return AttemptEvents(conditions, budgets, list(trials.values()))


def _events(path: Path) -> Iterator[Event]:
    with path.open("rb") as lines:
        for line in lines:
            yield parse_event(line)
