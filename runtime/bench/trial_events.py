"""The events of an attempt's file, trial by trial: facts, and what only a benchmark asks of them."""

import hashlib
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from contract.events import (
    BatchExecuted,
    Conditions,
    Event,
    KvSampled,
    MemoryBudgeted,
    Stream,
    TokenEmitted,
    parse_event,
)
from contract.events.trace import BatchMember
from measures.facts.attempt import CallFacts, TrialFacts
from measures.facts.reader import attempt_facts
from measures.metrics.samples import SampleValue, samples_of
from runtime.measured.emit import stream_of


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


@dataclass(frozen=True, slots=True)
class TrialEvents:
    """One trial. pools: the pool at every sample during which all sequences decoded.

    Its memory and pool samples are gone: they would stay in the footprint of this process, which is measured.
    """

    facts: TrialFacts
    samples: Sequence[SampleValue] = ()
    decode_steps: Sequence[DecodeStep] = ()
    pools: Sequence[PoolInUse] = ()
    output_sha256: str = ""
    """Of the output ids in the order of agents and calls, whatever the order in which they came."""


@dataclass(frozen=True, slots=True)
class AttemptEvents:
    """What one file held. budgets by arm."""

    conditions: Conditions
    budgets: dict[str, MemoryBudgeted]
    trials: list[TrialEvents]


def read_attempt(path: Path) -> AttemptEvents:
    """EventLineError for a line that is not an event; ValueError when the file has no conditions."""
    streams: dict[Stream, list[Event]] = defaultdict(list)
    with path.open("rb") as lines:
        for line in lines:
            event = parse_event(line)
            streams[stream_of(event)].append(event)
    facts = attempt_facts(streams)
    if facts.conditions is None:
        raise ValueError(f"{path}: the attempt recorded no conditions")
    trials = [
        TrialEvents(
            facts=replace(trial, memory=(), kv=()),
            samples=samples_of(trial),
            decode_steps=_decode_steps(trial, streams[Stream.LOG]),
            pools=_pools(trial),
            output_sha256=_output_sha256(trial, streams[Stream.CONTROL]),
        )
        for trial in facts.trials
    ]
    return AttemptEvents(facts.conditions, dict(facts.budgets), trials)


def _decode_steps(trial: TrialFacts, log: Sequence[Event]) -> list[DecodeStep]:
    calls = {(call.agent, call.call): call for call in trial.calls}

    def context(member: BatchMember, step_ns: int) -> int:
        call = calls[member.agent, member.call]
        # The tokens that a step makes have its own time.
        return _context(call, bisect_left(call.token_ns, step_ns))

    return [
        DecodeStep(tuple(context(member, event.t_mono_ns) for member in event.decode), event.duration_ns)
        for event in log
        if isinstance(event, BatchExecuted) and event.trial == trial.trial and not event.prefill
    ]


def _pools(trial: TrialFacts) -> list[PoolInUse]:
    pools = []
    for sample in trial.kv:
        decoding = [
            (call, made)
            for call in trial.calls
            if (made := bisect_right(call.token_ns, sample.t_mono_ns)) and not _has_ended(call, sample)
        ]
        if decoding and len(decoding) == sample.sequences_running:
            # The newest token of a sequence has no KV yet.
            held = tuple(_context(call, made) - 1 for call, made in decoding)
            pools.append(PoolInUse(sample.blocks_used, held))
    return pools


def _has_ended(call: CallFacts, sample: KvSampled) -> bool:
    return call.finished is not None and call.finished.t_mono_ns <= sample.t_mono_ns


def _context(call: CallFacts, made: int) -> int:
    return call.arrived.prompt_tokens + made


def _output_sha256(trial: TrialFacts, control: Sequence[Event]) -> str:
    made: dict[tuple[str, int], list[int]] = defaultdict(list)
    for event in control:
        if isinstance(event, TokenEmitted) and event.trial == trial.trial:
            made[event.agent, event.call].append(event.token_id)
    ids = [[list(key), tokens] for key, tokens in sorted(made.items())]
    return hashlib.sha256(repr(ids).encode()).hexdigest() if ids else ""
