"""KV cache figures of a trial: how much of the prompts was not computed, and what the pool went through."""

from typing import Final

from contract.events import CallFinished
from measures.facts.attempt import TrialFacts
from measures.metrics.formulas import Formulas


def _finished(trial: TrialFacts) -> list[CallFinished]:
    return [call.finished for call in trial.calls if call.finished is not None]


def prompt_tokens_submitted(trial: TrialFacts) -> int:
    """Prompt tokens of all finished calls."""
    return sum(finished.prompt_tokens for finished in _finished(trial))


def prompt_tokens_computed(trial: TrialFacts) -> int:
    """Prompt tokens that went through the model, again after a preemption included."""
    return sum(finished.computed_tokens for finished in _finished(trial))


def kv_hit_rate_tokens(trial: TrialFacts) -> float | None:
    """Cached prompt tokens / prompt tokens, 0 to 1; None without a prompt token."""
    submitted = prompt_tokens_submitted(trial)
    return sum(finished.cached_tokens for finished in _finished(trial)) / submitted if submitted else None


def kv_hit_rate_requests(trial: TrialFacts) -> float | None:
    """Finished calls with any cached prompt token / finished calls; None without one."""
    finished = _finished(trial)
    return sum(call.cached_tokens > 0 for call in finished) / len(finished) if finished else None


def kv_blocks_peak(trial: TrialFacts) -> int | None:
    """Most blocks that sequences held at once; None for an arm without a pool.

    From the trace; where that has gaps, from samples, which are 50 ms apart and may miss the peak.
    """
    if trial.blocks_peak is not None:
        return trial.blocks_peak
    return max((sample.blocks_used for sample in trial.kv), default=None)


def preemptions(trial: TrialFacts) -> int:
    """How often a sequence lost its KV."""
    return sum(call.preemptions for call in trial.calls)


def failed_calls(trial: TrialFacts) -> int:
    """Tries that ended without a result; a retry that works does not undo the failure."""
    return sum(call.failed is not None for call in trial.calls)


FORMULAS: Final = Formulas(
    trials={
        "kv_hit_rate_tokens": kv_hit_rate_tokens,
        "kv_hit_rate_requests": kv_hit_rate_requests,
        "prompt_tokens_submitted": prompt_tokens_submitted,
        "prompt_tokens_computed": prompt_tokens_computed,
        "kv_blocks_peak": kv_blocks_peak,
        "preemptions": preemptions,
        "failed_calls": failed_calls,
    }
)
