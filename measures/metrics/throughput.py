"""Rates in tokens per second; None where the time is too short to divide by."""

from typing import Final

from measures.facts.attempt import CallFacts, TrialFacts
from measures.metrics.formulas import Formulas
from measures.metrics.latency import decode_ns, prefill_ns, wall_ns

_NS_PER_S: Final = 1e9


def output_tokens_per_s(trial: TrialFacts) -> float | None:
    """Output tokens of all agents, failed tries included, over the trial's wall time."""
    return _rate(sum(len(call.token_ns) for call in trial.calls), wall_ns(trial))


def decode_tokens_per_s(call: CallFacts) -> float | None:
    """(output tokens - 1) over the time from the first token to the last: the rate of one stream."""
    return _rate(len(call.token_ns) - 1, decode_ns(call))


def prefill_tokens_per_s(call: CallFacts) -> float | None:
    """Computed prompt tokens over prefill time.

    None for a preempted call: its computed tokens include work that was done after the first token.
    """
    if call.finished is None or call.preemptions:
        return None
    return _rate(call.finished.computed_tokens, prefill_ns(call))


def _rate(tokens: int, span_ns: int | None) -> float | None:
    return tokens * _NS_PER_S / span_ns if span_ns else None


FORMULAS: Final = Formulas(
    calls={"decode_tokens_per_s": decode_tokens_per_s, "prefill_tokens_per_s": prefill_tokens_per_s},
    trials={"output_tokens_per_s": output_tokens_per_s},
)
