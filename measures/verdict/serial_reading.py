"""The automatic reading of a comparison of the serial arm with the paged one, as a decision table.

It explains only what is established: a change that its pairs do not tell from noise is `UNCLEAR`, and no rule
speaks of a cause on account of it.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import StrEnum

from measures.errors import AnalysisInputError
from measures.metrics.change import reduction_percent, speedup
from measures.wording import change as change_text
from measures.wording import number, reduction
from measures.wording import speedup as speedup_text


@dataclass(frozen=True, slots=True)
class ArmMedians:
    """Medians of one arm; None where a metric was not measured.

    `decode_tokens_per_s` is the rate of one stream while it decodes. Output tokens over wall time must not be
    given for it: that figure rises whenever wall time falls and would hide avoided recomputation.
    `ttft_ns` is an agent's, from the trial's start; `call_ttft_ns` a single call's, from its arrival.
    """

    wall_s: float
    ttft_ns: float | None
    peak_footprint_bytes: float | None
    decode_tokens_per_s: float | None
    call_ttft_ns: float | None = None
    prompt_tokens_computed: float | None = None


class Move(StrEnum):
    """Where a median went from baseline to candidate. UNCLEAR: not beyond the noise of the pairs."""

    DOWN = "down"
    LEVEL = "level"
    UP = "up"
    UNCLEAR = "unclear"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Change:
    """One metric in both arms, in the unit shown; `percent` is (candidate - baseline) / baseline x 100.

    name: the field of ArmMedians.
    """

    name: str
    metric: str
    unit: str
    baseline: float | None
    candidate: float | None
    percent: float | None
    move: Move

    def __str__(self) -> str:
        if self.move is Move.MISSING:
            return f"{self.metric} not measured in both arms"
        before, after = _shown(self.baseline), _shown(self.candidate)
        doubt = ", not established" if self.move is Move.UNCLEAR else ""
        return f"{self.metric} {before} to {after} {self.unit}, {change_text(self.percent)}{doubt}"


def _shown(value: float | None) -> str:
    return "unknown" if value is None else number(value)


class Finding(StrEnum):
    """What a sentence of the reading says."""

    WALL_TIME = "wall_time"
    SCHEDULING_WORKS = "scheduling_works"
    PAGING_WORKS = "paging_works"
    RECOMPUTATION_AVOIDED = "recomputation_avoided"
    DECODE_FASTER = "decode_faster"
    STREAMS_SLOWER = "streams_slower"
    BATCH_LIMIT_TOO_HIGH = "batch_limit_too_high"
    FIRST_TOKEN_LATER = "first_token_later"
    CALLS_WAIT_LONGER = "calls_wait_longer"
    TIME_LOST_OUTSIDE_DECODE = "time_lost_outside_decode"
    MEMORY_GREW = "memory_grew"
    NO_DIFFERENCE = "no_difference"
    NO_READING = "no_reading"
    NOT_ESTABLISHED = "not_established"


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence and the changes that it rests on; the text ends with their numbers."""

    finding: Finding
    text: str
    rests_on: tuple[Change, ...]


_ANY = frozenset(Move)
_DOWN = frozenset({Move.DOWN})
_LEVEL = frozenset({Move.LEVEL})
_UP = frozenset({Move.UP})
_NO_WORSE = frozenset({Move.DOWN, Move.LEVEL})
_UNMOVED = frozenset({Move.LEVEL, Move.MISSING})


@dataclass(frozen=True, slots=True)
class ReadingRule:
    """A row of the table: it speaks when each metric moved in one of the ways named (default: any)."""

    finding: Finding
    text: str
    wall: frozenset[Move] = field(default=_ANY)
    ttft: frozenset[Move] = field(default=_ANY)
    memory: frozenset[Move] = field(default=_ANY)
    rate: frozenset[Move] = field(default=_ANY)
    call: frozenset[Move] = field(default=_ANY)
    computed: frozenset[Move] = field(default=_ANY)

    @property
    def columns(self) -> tuple[frozenset[Move], ...]:
        """Accepted moves in the order of the changes."""
        return (self.wall, self.ttft, self.memory, self.rate, self.call, self.computed)


RULES: tuple[ReadingRule, ...] = (
    ReadingRule(
        Finding.SCHEDULING_WORKS,
        "Scheduling works: less wall time, and no agent's first token is later",
        wall=_DOWN,
        ttft=_NO_WORSE,
    ),
    ReadingRule(
        Finding.FIRST_TOKEN_LATER,
        "Contradictory: all agents together are done sooner, but each waits longer for its first token; "
        "look at the prefill chunk and at admission",
        wall=_DOWN,
        ttft=_UP,
    ),
    ReadingRule(
        Finding.CALLS_WAIT_LONGER,
        "A single call waits longer for its first token: calls of several agents share the steps",
        wall=_DOWN,
        call=_UP,
    ),
    ReadingRule(
        Finding.RECOMPUTATION_AVOIDED,
        "The gain is avoided recomputation: fewer prompt tokens computed, the same decode rate",
        wall=_DOWN,
        rate=_LEVEL,
        computed=_DOWN,
    ),
    ReadingRule(
        Finding.DECODE_FASTER,
        "Part of the gain is faster decoding, not only avoided recomputation",
        wall=_DOWN,
        rate=_UP,
    ),
    ReadingRule(
        Finding.STREAMS_SLOWER,
        "Each stream decodes more slowly, and sharing the step more than makes up for it",
        wall=_DOWN,
        rate=_DOWN,
    ),
    ReadingRule(
        Finding.BATCH_LIMIT_TOO_HIGH,
        "Slower than serial; a lower batch limit may suit this device",
        wall=_UP,
    ),
    ReadingRule(
        Finding.TIME_LOST_OUTSIDE_DECODE,
        "Contradictory: decoding is faster and yet the whole takes longer; look at prefill and waiting",
        wall=_UP,
        rate=_UP,
    ),
    ReadingRule(Finding.PAGING_WORKS, "Paging works: peak memory is lower", memory=_DOWN),
    ReadingRule(
        Finding.MEMORY_GREW,
        "Peak memory is higher than the serial arm's",
        memory=_UP,
    ),
    ReadingRule(
        Finding.NO_DIFFERENCE,
        "No difference: nothing that was measured moved",
        wall=_LEVEL,
        ttft=_UNMOVED,
        memory=_UNMOVED,
        rate=_UNMOVED,
        call=_UNMOVED,
        computed=_UNMOVED,
    ),
)


def read_result(
    baseline: ArmMedians,
    candidate: ArmMedians,
    level_percent: float,
    unclear: Collection[str] = (),
) -> list[Sentence]:
    """What the change from the serial arm to the candidate means; the first sentence is on wall time.

    A change of at most `level_percent` is "about the same". unclear: fields of ArmMedians whose change the
    pairs do not establish. Where no row of RULES speaks, one sentence says so with all the numbers: never
    silence. AnalysisInputError for values that are not positive.
    """
    if not 0 <= level_percent < 100:
        raise AnalysisInputError(f"level_percent: {level_percent} is not in [0, 100)")
    changes = tuple(
        replace(change, move=Move.UNCLEAR)
        if change.name in unclear and change.move is not Move.MISSING
        else change
        for change in _changes(baseline, candidate, level_percent)
    )
    sentences = [_wall_sentence(baseline.wall_s, candidate.wall_s, changes[0])]
    for rule in RULES:
        if all(change.move in moves for change, moves in zip(changes, rule.columns, strict=True)):
            rests_on = tuple(c for c, moves in zip(changes, rule.columns, strict=True) if moves != _ANY)
            sentences.append(_sentence(rule.finding, rule.text, rests_on))
    if len(sentences) == 1:
        is_clear = all(change.move is not Move.UNCLEAR for change in changes)
        finding, text = (
            (Finding.NO_READING, "No rule reads these changes")
            if is_clear
            else (Finding.NOT_ESTABLISHED, "The pairs do not establish what moved, so no cause is named")
        )
        sentences.append(_sentence(finding, text, changes))
    return sentences


def _sentence(finding: Finding, text: str, rests_on: tuple[Change, ...]) -> Sentence:
    return Sentence(finding, f"{text} ({'; '.join(str(change) for change in rests_on)}).", rests_on)


def _wall_sentence(baseline_s: float, candidate_s: float, change: Change) -> Sentence:
    less = reduction(reduction_percent(baseline_s, candidate_s))
    faster = speedup_text(speedup(baseline_s, candidate_s))
    text = f"Wall time {number(baseline_s)} s to {number(candidate_s)} s: {less}, {faster}."
    return Sentence(Finding.WALL_TIME, text, (change,))


_SHOWN = (
    ("wall_s", "wall time", "s", 1.0),
    ("ttft_ns", "agent's TTFT", "ms", 1e6),
    ("peak_footprint_bytes", "peak memory", "MB", 1e6),
    ("decode_tokens_per_s", "decode rate", "tokens/s", 1.0),
    ("call_ttft_ns", "call's TTFT", "ms", 1e6),
    ("prompt_tokens_computed", "prompt tokens computed", "tokens", 1.0),
)
"""Field of ArmMedians, name and unit that are shown, and what the value is divided by; in the order of
ReadingRule.columns."""


def _changes(baseline: ArmMedians, candidate: ArmMedians, level_percent: float) -> tuple[Change, ...]:
    changes = []
    for name, metric, unit, scale in _SHOWN:
        before, after = getattr(baseline, name), getattr(candidate, name)
        if before is None or after is None:
            changes.append(Change(name, metric, unit, None, None, None, Move.MISSING))
            continue
        percent = -reduction_percent(before, after)
        move = _move(percent, level_percent)
        changes.append(Change(name, metric, unit, before / scale, after / scale, percent, move))
    return tuple(changes)


def _move(percent: float, level_percent: float) -> Move:
    if abs(percent) <= level_percent:
        return Move.LEVEL
    return Move.UP if percent > 0 else Move.DOWN
