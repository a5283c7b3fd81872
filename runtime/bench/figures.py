"""Figures of one trial from its events.

The definitions are those of contract/metrics.py, whose formulas stand in measures. A runtime may
not import the controller, so what a figure needs is written here again; tests/runtime/bench reads one event
file with both and demands equal values.
"""

import hashlib
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from contract.rest import Spread
from runtime.bench.trial_events import TrialEvents

_NS_PER_S = 1e9
_NS_PER_MS = 1e6
_BYTES_PER_MB = 1e6


@dataclass(frozen=True, slots=True)
class TrialFigures:
    """One completed trial. itl_*: the median over its calls; None without two tokens in any call.

    ttft_s: by agent, from the trial's start. blocks_peak: None for an arm without a pool.
    """

    wall_s: float
    ttft_s: dict[str, float]
    itl_p50_ms: float | None
    itl_p95_ms: float | None
    prompt_tokens_submitted: int
    prompt_tokens_computed: int
    kv_hit_rate_tokens: float
    peak_footprint_mb: float
    blocks_peak: int | None
    output_sha256: str


def trial_figures(trial: TrialEvents) -> TrialFigures:
    """ValueError for a trial that did not complete."""
    if trial.finished is None or trial.finished.status != "completed":
        raise ValueError(f"trial {trial.started.trial} did not complete")
    start_ns = trial.started.t_mono_ns
    first_ns: dict[str, int] = {}
    for (agent, _), made_ns in trial.token_ns.items():
        if made_ns:
            first_ns.setdefault(agent, made_ns[0])
    gaps = [gaps_ns(made_ns) for made_ns in trial.token_ns.values() if len(made_ns) > 1]
    finished = trial.calls.values()
    submitted = sum(call.prompt_tokens for call in finished)
    return TrialFigures(
        wall_s=(trial.finished.t_mono_ns - start_ns) / _NS_PER_S,
        ttft_s={agent: (at_ns - start_ns) / _NS_PER_S for agent, at_ns in first_ns.items()},
        itl_p50_ms=_median(statistics.median(each) / _NS_PER_MS for each in gaps),
        itl_p95_ms=_median(percentile_95(each) / _NS_PER_MS for each in gaps),
        prompt_tokens_submitted=submitted,
        prompt_tokens_computed=sum(call.computed_tokens for call in finished),
        kv_hit_rate_tokens=sum(call.cached_tokens for call in finished) / submitted if submitted else 0.0,
        peak_footprint_mb=trial.footprint_peak_bytes / _BYTES_PER_MB,
        blocks_peak=trial.blocks_peak,
        output_sha256=_digest(trial),
    )


def gaps_ns(token_ns: Sequence[int]) -> list[int]:
    """ITL: every gap between neighbouring tokens."""
    return [after - before for before, after in pairwise(token_ns)]


def percentile_95(values: Sequence[float]) -> float:
    """Linear between the two nearest of at least one value."""
    ordered = sorted(values)
    rank = 0.95 * (len(ordered) - 1)
    below = int(rank)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (rank - below) * (ordered[above] - ordered[below])


def spread_of(values: Iterable[float]) -> Spread:
    """Median and range of at least one value."""
    kept = list(values)
    return Spread(median=statistics.median(kept), min=min(kept), max=max(kept), n=len(kept))


def pool_waste_percent(trial: TrialEvents, block_tokens: int, shared_tokens: int) -> float | None:
    """Slots that hold no token, of the blocks in use, over all samples in which every sequence decoded.

    None without such a sample. Full blocks of the shared prefix are held once; its partial tail is in a block
    of every sequence.
    """
    slots = held = 0
    for pool in trial.pools:
        shared_once = shared_tokens // block_tokens * block_tokens if len(pool.sequence_tokens) > 1 else 0
        slots += pool.blocks_used * block_tokens
        held += shared_once + sum(max(0, tokens - shared_once) for tokens in pool.sequence_tokens)
    return max(0.0, (slots - held) / slots * 100.0) if slots else None


def _median(values: Iterable[float]) -> float | None:
    kept = list(values)
    return statistics.median(kept) if kept else None


def _digest(trial: TrialEvents) -> str:
    """Of the output ids in the order of agents and calls, whatever the order in which they came."""
    ids = [[list(key), made] for key, made in sorted(trial.token_ids.items()) if made]
    return hashlib.sha256(repr(ids).encode()).hexdigest() if ids else ""
