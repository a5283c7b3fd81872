"""The automatic reading of a comparison with the serial arm (requirement C4), as a decision table.

A reading is of medians and says what to think of first; whether a change is real is the verdict's business.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from measures.errors import AnalysisInputError
from measures.metrics.change import reduction_percent, speedup


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


class Move(StrEnum):
    """Where a median went from baseline to candidate."""

    DOWN = "down"
    LEVEL = "level"
    UP = "up"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Change:
    """One metric in both arms, in the unit shown; `percent` is (candidate - baseline) / baseline x 100."""

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
        return f"{self.metric} {before} to {after} {self.unit}, {self.percent:+.1f} %"


def _shown(value: float | None) -> str:
    """Four digits, and never an exponent for what a person can read without."""
    if value is None:
        return "unknown"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


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

    @property
    def columns(self) -> tuple[frozenset[Move], ...]:
        """Accepted moves in the order of the changes."""
        return (self.wall, self.ttft, self.memory, self.rate, self.call)


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
        "The gain is avoided recomputation: less wall time at about the same decode rate",
        wall=_DOWN,
        rate=_LEVEL,
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
        "Slower than serial: the batch limit is too high for this device; lower it",
        wall=_UP,
    ),
    ReadingRule(
        Finding.TIME_LOST_OUTSIDE_DECODE,
        "Contradictory: decoding is faster and yet the whole takes longer; "
        "the time is lost in prefill or in waiting",
        wall=_UP,
        rate=_UP,
    ),
    ReadingRule(Finding.PAGING_WORKS, "Paging works: peak memory is lower", memory=_DOWN),
    ReadingRule(
        Finding.MEMORY_GREW,
        "Peak memory is higher: the block pool holds more than the serial arm's cache ever did",
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
    ),
)


def read_result(baseline: ArmMedians, candidate: ArmMedians, level_percent: float) -> list[Sentence]:
    """What the change from the serial arm to the candidate means; the first sentence is on wall time.

    A change of at most `level_percent` is "about the same". Where no row of RULES speaks, one sentence says
    so with all the numbers: never silence. AnalysisInputError for values that are not positive.
    """
    if not 0 <= level_percent < 100:
        raise AnalysisInputError(f"level_percent: {level_percent} is not in [0, 100)")
    changes = _changes(baseline, candidate, level_percent)
    sentences = [_wall_sentence(baseline.wall_s, candidate.wall_s, changes[0])]
    for rule in RULES:
        if all(change.move in moves for change, moves in zip(changes, rule.columns, strict=True)):
            rests_on = tuple(c for c, moves in zip(changes, rule.columns, strict=True) if moves != _ANY)
            sentences.append(_sentence(rule.finding, rule.text, rests_on))
    if len(sentences) == 1:
        sentences.append(_sentence(Finding.NO_READING, "No rule reads these changes", changes))
    return sentences


def _sentence(finding: Finding, text: str, rests_on: tuple[Change, ...]) -> Sentence:
    return Sentence(finding, f"{text} ({'; '.join(str(change) for change in rests_on)}).", rests_on)


def _wall_sentence(baseline_s: float, candidate_s: float, change: Change) -> Sentence:
    less = reduction_percent(baseline_s, candidate_s)
    much = f"{less:.1f} % less" if less >= 0 else f"{-less:.1f} % more"
    text = (
        f"Wall time {baseline_s:.4g} s to {candidate_s:.4g} s: {much} time, "
        f"{speedup(baseline_s, candidate_s):.2f} times as fast."
    )
    return Sentence(Finding.WALL_TIME, text, (change,))


def _changes(baseline: ArmMedians, candidate: ArmMedians, level_percent: float) -> tuple[Change, ...]:
    """Changes of wall, agent's TTFT, memory, rate and call's TTFT: the order of ReadingRule.columns, in the
    units shown."""
    shown = (
        ("wall time", "s", 1.0, baseline.wall_s, candidate.wall_s),
        ("agent's TTFT", "ms", 1e6, baseline.ttft_ns, candidate.ttft_ns),
        ("peak memory", "MB", 1e6, baseline.peak_footprint_bytes, candidate.peak_footprint_bytes),
        ("decode rate", "tokens/s", 1.0, baseline.decode_tokens_per_s, candidate.decode_tokens_per_s),
        ("call's TTFT", "ms", 1e6, baseline.call_ttft_ns, candidate.call_ttft_ns),
    )
    return tuple(_change(name, unit, scale, pair, level_percent) for name, unit, scale, *pair in shown)


def _change(metric: str, unit: str, scale: float, pair: list[float | None], level_percent: float) -> Change:
    before, after = pair
    if before is None or after is None:
        return Change(metric, unit, None, None, None, Move.MISSING)
    percent = -reduction_percent(before, after)
    return Change(metric, unit, before / scale, after / scale, percent, _move(percent, level_percent))


def _move(percent: float, level_percent: float) -> Move:
    if abs(percent) <= level_percent:
        return Move.LEVEL
    return Move.UP if percent > 0 else Move.DOWN
