"""Figures of one trial, by the formulas of `measures` (docs/adr/0021), and of its pool."""

from dataclasses import dataclass

from measures.metrics.arms import trial_values
from runtime.bench.trial_events import TrialEvents


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


def trial_figures(trial: TrialEvents) -> TrialFigures:
    """ValueError for a trial that did not complete."""
    if not trial.facts.completed:
        raise ValueError(f"trial {trial.facts.trial} did not complete")

    def value(metric: str) -> float | None:
        return trial_values(trial.samples, metric).get(trial.facts.trial)

    blocks_peak = value("kv_blocks_peak")
    return TrialFigures(
        wall_s=value("wall_s") or 0.0,
        ttft_s={
            sample.agent: sample.value / 1e3
            for sample in trial.samples
            if sample.metric == "agent_ttft_ms" and sample.agent is not None
        },
        itl_p50_ms=value("itl_ms"),
        itl_p95_ms=value("itl_p95_ms"),
        prompt_tokens_submitted=int(value("prompt_tokens_submitted") or 0),
        prompt_tokens_computed=int(value("prompt_tokens_computed") or 0),
        kv_hit_rate_tokens=value("kv_hit_rate_tokens") or 0.0,
        peak_footprint_mb=value("peak_footprint_mb") or 0.0,
        blocks_peak=None if blocks_peak is None else int(blocks_peak),
    )


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
