"""Facts to samples: the registry that gives every metric of the catalogue its one formula.

To add a metric: a line in contract/metrics.py and its formula here (docs/adr/0002).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from contract.metrics import METRICS, Scope
from controller.analysis import kv, latency, memory, throughput
from controller.analysis.facts import CallFacts, TrialFacts

_NS_PER_MS = 1e6
_NS_PER_S = 1e9
_BYTES_PER_MB = 1e6


@dataclass(frozen=True, slots=True)
class SampleValue:
    """One value of one metric, in the catalogue's unit. agent and call None where the metric spans them."""

    metric: str
    trial: int
    arm: str
    pair: int | None
    agent: str | None
    call: int | None
    value: float


def _scaled(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit


CALL_FORMULAS: Final[Mapping[str, Callable[[CallFacts], float | None]]] = MappingProxyType(
    {
        "ttft_ms": lambda call: _scaled(latency.ttft_ns(call), _NS_PER_MS),
        "queue_ms": lambda call: _scaled(latency.queue_ns(call), _NS_PER_MS),
        "prefill_ms": lambda call: _scaled(latency.prefill_ns(call), _NS_PER_MS),
        "itl_ms": lambda call: _scaled(latency.itl_ns(call), _NS_PER_MS),
        "itl_p95_ms": lambda call: _scaled(latency.itl_p95_ns(call), _NS_PER_MS),
        "tpot_ms": lambda call: _scaled(latency.tpot_ns(call), _NS_PER_MS),
        "e2e_ms": lambda call: _scaled(latency.e2e_ns(call), _NS_PER_MS),
        "decode_tokens_per_s": throughput.decode_tokens_per_s,
        "prefill_tokens_per_s": throughput.prefill_tokens_per_s,
    }
)

AGENT_FORMULAS: Final[Mapping[str, Callable[[TrialFacts], Mapping[str, float]]]] = MappingProxyType(
    {
        "agent_ttft_ms": lambda trial: {
            agent: ns / _NS_PER_MS for agent, ns in latency.agent_ttft_ns(trial).items()
        },
    }
)

TRIAL_FORMULAS: Final[Mapping[str, Callable[[TrialFacts], float | None]]] = MappingProxyType(
    {
        "wall_s": lambda trial: latency.wall_ns(trial) / _NS_PER_S,
        "output_tokens_per_s": throughput.output_tokens_per_s,
        "peak_footprint_mb": lambda trial: _scaled(memory.peak_footprint_bytes(trial), _BYTES_PER_MB),
        "min_headroom_mb": lambda trial: _scaled(memory.min_headroom_bytes(trial), _BYTES_PER_MB),
        "kv_hit_rate_tokens": kv.kv_hit_rate_tokens,
        "kv_hit_rate_requests": kv.kv_hit_rate_requests,
        "prompt_tokens_submitted": kv.prompt_tokens_submitted,
        "prompt_tokens_computed": kv.prompt_tokens_computed,
        "kv_blocks_peak": kv.kv_blocks_peak,
        "preemptions": kv.preemptions,
        "memory_warnings": memory.memory_warnings,
        "failed_calls": kv.failed_calls,
    }
)

FORMULAS_BY_SCOPE: Final[Mapping[Scope, Mapping[str, object]]] = MappingProxyType(
    {Scope.CALL: CALL_FORMULAS, Scope.AGENT: AGENT_FORMULAS, Scope.TRIAL: TRIAL_FORMULAS}
)


def samples_of(trial: TrialFacts) -> list[SampleValue]:
    """Every sample of a trial, in the catalogue's order; a call's tries that failed have none.

    A trial that is not completed has only its counts: what it took before it broke off is no duration.
    ImpossibleEventsError for times that cannot be.
    """
    samples: list[SampleValue] = []
    for name, definition in METRICS.items():
        if not trial.completed and definition.unit != "count":
            continue
        samples += [
            SampleValue(name, trial.trial, trial.arm, trial.pair, agent, call, float(value))
            for agent, call, value in _values(name, trial)
        ]
    return samples


def _values(name: str, trial: TrialFacts) -> Iterator[tuple[str | None, int | None, float]]:
    """(agent, call, value) of one metric."""
    if name in CALL_FORMULAS:
        for call in trial.calls:
            value = CALL_FORMULAS[name](call) if call.failed is None else None
            if value is not None:
                yield call.agent, call.call, value
    elif name in AGENT_FORMULAS:
        for agent, value in AGENT_FORMULAS[name](trial).items():
            yield agent, None, value
    else:
        value = TRIAL_FORMULAS[name](trial)
        if value is not None:
            yield None, None, value
