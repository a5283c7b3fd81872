"""Latencies of a call and of an agent, in nanoseconds; None where the call has no such latency.

Names are vLLM's: ITL is every gap between neighbouring tokens, TPOT their mean (docs/glossary.md).
"""

import statistics
from itertools import pairwise
from typing import Final

from measures.facts.attempt import CallFacts, ImpossibleEventsError, TrialFacts
from measures.metrics.formulas import Formulas, scaled

_NS_PER_MS: Final = 1e6
_NS_PER_S: Final = 1e9


def elapsed_ns(start_ns: int, end_ns: int, what: str) -> int:
    """end - start; ImpossibleEventsError when the end comes first. `what` names the span in the message."""
    if end_ns < start_ns:
        raise ImpossibleEventsError(f"{what}: its end at {end_ns} ns precedes its start at {start_ns} ns")
    return end_ns - start_ns


def wall_ns(trial: TrialFacts) -> int:
    """trial_finished minus trial_started; the trial must have finished."""
    if trial.finished_ns is None:
        raise ImpossibleEventsError(f"trial {trial.trial} has no end, so no wall time")
    return elapsed_ns(trial.started_ns, trial.finished_ns, f"wall time of trial {trial.trial}")


def ttft_ns(call: CallFacts) -> int | None:
    """First token minus arrival: queueing counts, since it is what the agent waits."""
    if not call.token_ns:
        return None
    return elapsed_ns(call.arrived.t_mono_ns, call.token_ns[0], "TTFT")


def queue_ns(call: CallFacts) -> int | None:
    """Admission minus arrival."""
    if call.admitted_ns is None:
        return None
    return elapsed_ns(call.arrived.t_mono_ns, call.admitted_ns, "queue time")


def prefill_ns(call: CallFacts) -> int | None:
    """First token minus admission."""
    if call.admitted_ns is None or not call.token_ns:
        return None
    return elapsed_ns(call.admitted_ns, call.token_ns[0], "prefill time")


def inter_token_latencies_ns(call: CallFacts) -> list[int]:
    """ITL: every gap, in order; empty for a single token."""
    return [elapsed_ns(before, after, "ITL") for before, after in pairwise(call.token_ns)]


def itl_ns(call: CallFacts) -> float | None:
    """Median ITL of the call."""
    gaps = inter_token_latencies_ns(call)
    return float(statistics.median(gaps)) if gaps else None


def itl_p95_ns(call: CallFacts) -> float | None:
    """95th percentile of the call's ITLs, linear between the two nearest."""
    gaps = sorted(inter_token_latencies_ns(call))
    if not gaps:
        return None
    rank = 0.95 * (len(gaps) - 1)
    below = int(rank)
    above = min(below + 1, len(gaps) - 1)
    return gaps[below] + (rank - below) * (gaps[above] - gaps[below])


def decode_ns(call: CallFacts) -> int | None:
    """Last token minus first; None for fewer than two tokens."""
    if len(call.token_ns) < 2:
        return None
    return elapsed_ns(call.token_ns[0], call.token_ns[-1], "decode time")


def tpot_ns(call: CallFacts) -> float | None:
    """Mean gap: (last - first) / (tokens - 1)."""
    span_ns = decode_ns(call)
    return None if span_ns is None else span_ns / (len(call.token_ns) - 1)


def e2e_ns(call: CallFacts) -> int | None:
    """call_finished minus call_arrived; None when it did not finish."""
    if call.finished is None:
        return None
    return elapsed_ns(call.arrived.t_mono_ns, call.finished.t_mono_ns, "end-to-end latency")


def agent_ttft_ns(trial: TrialFacts) -> dict[str, int]:
    """Agent to the first token of its first call, counted from the trial's start."""
    firsts: dict[str, int] = {}
    for call in trial.calls:
        if call.agent not in firsts and call.token_ns:
            what = f"TTFT of agent {call.agent}"
            firsts[call.agent] = elapsed_ns(trial.started_ns, call.token_ns[0], what)
    return firsts


def _agent_ttft_ms(trial: TrialFacts) -> dict[str, float]:
    return {agent: ns / _NS_PER_MS for agent, ns in agent_ttft_ns(trial).items()}


FORMULAS: Final = Formulas(
    calls={
        "ttft_ms": scaled(ttft_ns, _NS_PER_MS),
        "queue_ms": scaled(queue_ns, _NS_PER_MS),
        "prefill_ms": scaled(prefill_ns, _NS_PER_MS),
        "itl_ms": scaled(itl_ns, _NS_PER_MS),
        "itl_p95_ms": scaled(itl_p95_ns, _NS_PER_MS),
        "tpot_ms": scaled(tpot_ns, _NS_PER_MS),
        "e2e_ms": scaled(e2e_ns, _NS_PER_MS),
    },
    agents={"agent_ttft_ms": _agent_ttft_ms},
    trials={"wall_s": scaled(wall_ns, _NS_PER_S)},
)
