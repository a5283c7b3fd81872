"""Lines for the live figures, from raw events; x in seconds since the attempt's first control event."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from contract.events import Event, KvSampled, MemorySampled, Stream, TokenEmitted
from contract.rest import Point, Series
from measures.facts.attempt import AttemptFacts
from measures.metrics.latency import agent_ttft_ns

MAX_POINTS = 600
WINDOW_S = 1.0
_NS_PER_S = 1e9
_NS_PER_MS = 1e6
_BYTES_PER_MB = 1e6


def live_series(events: Mapping[Stream, Sequence[Event]], facts: AttemptFacts) -> list[Series]:
    """Output rate, footprint and limit, KV blocks, TTFT per agent; a line without points is left out."""
    if facts.opened_ns is None:
        return []
    opened_ns = facts.opened_ns
    control = events.get(Stream.CONTROL, ())
    samples = events.get(Stream.SAMPLES, ())
    series = [
        output_rate(control, opened_ns),
        *_memory_series(samples, opened_ns),
        *_kv_series(samples, opened_ns),
        *_ttft_series(facts, opened_ns),
    ]
    return [line for line in series if line.points]


def output_rate(control: Iterable[Event], opened_ns: int) -> Series:
    """Output tokens per second in windows of WINDOW_S; a window without a token is a zero, not a gap."""
    window_ns = int(WINDOW_S * _NS_PER_S)
    counts = Counter(
        (event.t_mono_ns - opened_ns) // window_ns for event in control if isinstance(event, TokenEmitted)
    )
    points = [
        Point(t_s=window * WINDOW_S, value=counts[window] / WINDOW_S) for window in _busiest_windows(counts)
    ]
    return Series(
        name="output_tokens_per_s", unit="tokens/s", label="output tokens per second", points=points
    )


def _busiest_windows(counts: Counter[int]) -> list[int]:
    """All windows from first to last, or the busiest of each bucket of neighbours: at most MAX_POINTS.

    A clock that jumps leaves a billion windows without a token, which are never put down one by one.
    """
    if not counts:
        return []
    first = min(counts)
    bucket = -(-(max(counts) - first + 1) // MAX_POINTS)
    busiest = {number: first + number * bucket for number in range((max(counts) - first) // bucket + 1)}
    for window in sorted(counts):
        number = (window - first) // bucket
        if counts[window] > counts[busiest[number]]:
            busiest[number] = window
    return list(busiest.values())


def thin(points: Sequence[Point]) -> list[Point]:
    """At most MAX_POINTS: the greatest of each bucket of neighbours, so that a peak is never thinned away."""
    if len(points) <= MAX_POINTS:
        return list(points)
    bucket = -(-len(points) // MAX_POINTS)
    return [
        max(points[start : start + bucket], key=lambda point: point.value)
        for start in range(0, len(points), bucket)
    ]


def _memory_series(samples: Iterable[Event], opened_ns: int) -> list[Series]:
    memory = [event for event in samples if isinstance(event, MemorySampled)]
    footprint = [
        Point(t_s=_since(event, opened_ns), value=event.footprint_bytes / _BYTES_PER_MB) for event in memory
    ]
    limit = [
        Point(t_s=_since(event, opened_ns), value=event.limit_bytes / _BYTES_PER_MB)
        for event in memory
        if event.limit_bytes is not None
    ]
    return [
        Series(name="footprint_mb", unit="MB", label="footprint", points=thin(footprint)),
        Series(name="limit_mb", unit="MB", label="limit", points=thin(limit)),
    ]


def _kv_series(samples: Iterable[Event], opened_ns: int) -> list[Series]:
    kv = [event for event in samples if isinstance(event, KvSampled)]
    return [
        Series(name=f"kv_blocks_{kind}", unit="blocks", label=f"KV blocks {kind}", points=thin(points))
        for kind, points in (
            ("used", [Point(t_s=_since(event, opened_ns), value=event.blocks_used) for event in kv]),
            ("cached", [Point(t_s=_since(event, opened_ns), value=event.blocks_cached) for event in kv]),
        )
    ]


def _ttft_series(facts: AttemptFacts, opened_ns: int) -> list[Series]:
    """One line per arm and agent: a point per trial, at the trial's start."""
    points: dict[tuple[str, str], list[Point]] = {}
    for trial in facts.trials:
        for agent, ttft in agent_ttft_ns(trial).items():
            point = Point(t_s=(trial.started_ns - opened_ns) / _NS_PER_S, value=ttft / _NS_PER_MS)
            points.setdefault((trial.arm, agent), []).append(point)
    return [
        Series(name="agent_ttft_ms", unit="ms", label=f"{arm} {agent}", points=thin(line))
        for (arm, agent), line in points.items()
    ]


def newest_agent_ttft_ms(facts: AttemptFacts) -> dict[str, dict[str, float]]:
    """Arm to agent to its TTFT in the arm's newest trial that has one."""
    newest: dict[str, dict[str, float]] = {}
    for trial in facts.trials:
        values = {agent: ns / _NS_PER_MS for agent, ns in agent_ttft_ns(trial).items()}
        if values:
            newest[trial.arm] = values
    return newest


def _since(event: Event, opened_ns: int) -> float:
    return (event.t_mono_ns - opened_ns) / _NS_PER_S
