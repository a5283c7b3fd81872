"""The metric catalogue, as data: each metric's name, unit, direction and definition stand here once.

Names follow vLLM's split (ITL is every gap, TPOT their mean); units are in the names. To add a
metric: a line here and its formula in controller/analysis, nothing else (docs/adr/0002).
"""

from enum import StrEnum
from types import MappingProxyType
from typing import Final

from contract.model import ContractModel


class Better(StrEnum):
    """Which direction is an improvement; NONE for a count that only informs."""

    LOWER = "lower"
    HIGHER = "higher"
    NONE = "none"


class Scope(StrEnum):
    """What one sample of the metric describes."""

    TRIAL = "trial"
    AGENT = "agent"
    CALL = "call"


class MetricDefinition(ContractModel):
    """floor_percent: a change smaller than this is not a regression (statistics.md 4.1.5)."""

    name: str
    title: str
    unit: str
    better: Better
    scope: Scope
    definition: str
    source: str
    floor_percent: float = 2.0
    primary: bool = False
    """Primary metrics gate; the others inform (statistics.md 4.3)."""


_VLLM = "vLLM benchmark names; runtime.md section 6"
_REQ = "requirements.md C1"
_LOWER, _HIGHER, _NONE = Better.LOWER, Better.HIGHER, Better.NONE
_TRIAL, _AGENT, _CALL = Scope.TRIAL, Scope.AGENT, Scope.CALL


def _metric(name: str, unit: str, better: Better, scope: Scope, text: str) -> MetricDefinition:
    title, definition, source = text.split(" | ")
    primary = name in {"wall_s", "ttft_ms", "peak_footprint_mb"}
    floor = {"peak_footprint_mb": 1.0, "ttft_ms": 3.0}.get(name, 2.0)
    return MetricDefinition(
        name=name,
        title=title,
        unit=unit,
        better=better,
        scope=scope,
        definition=definition,
        source=source,
        floor_percent=floor,
        primary=primary,
    )


_CATALOGUE = (
    _metric("wall_s", "s", _LOWER, _TRIAL, f"Wall time | trial_finished minus trial_started | {_REQ}, C3"),
    _metric(
        "ttft_ms",
        "ms",
        _LOWER,
        _CALL,
        f"Time to first token | first token_emitted minus call_arrived, queueing included | {_VLLM}",
    ),
    _metric(
        "agent_ttft_ms",
        "ms",
        _LOWER,
        _AGENT,
        f"Agent's time to first token | first token of the agent's first call minus trial_started | {_REQ}",
    ),
    _metric("queue_ms", "ms", _LOWER, _CALL, f"Queue time | call_admitted minus call_arrived | {_VLLM}"),
    _metric(
        "prefill_ms", "ms", _LOWER, _CALL, f"Prefill time | first token_emitted minus call_admitted | {_VLLM}"
    ),
    _metric(
        "itl_ms",
        "ms",
        _LOWER,
        _CALL,
        f"Inter-token latency | median gap between a call's neighbouring tokens | {_VLLM}",
    ),
    _metric(
        "itl_p95_ms",
        "ms",
        _LOWER,
        _CALL,
        f"Inter-token latency, p95 | 95th percentile of the call's gaps | {_VLLM}",
    ),
    _metric(
        "tpot_ms",
        "ms",
        _LOWER,
        _CALL,
        f"Time per output token | (last token minus first token) / (output tokens - 1) | {_VLLM}",
    ),
    _metric(
        "e2e_ms", "ms", _LOWER, _CALL, f"End-to-end latency | call_finished minus call_arrived | {_VLLM}"
    ),
    _metric(
        "output_tokens_per_s",
        "tokens/s",
        _HIGHER,
        _TRIAL,
        f"Output tokens per second | output tokens of all agents / wall time | {_REQ}",
    ),
    _metric(
        "decode_tokens_per_s",
        "tokens/s",
        _HIGHER,
        _CALL,
        f"Decode rate of a call | (output tokens - 1) / (last token minus first token) | {_REQ}",
    ),
    _metric(
        "prefill_tokens_per_s",
        "tokens/s",
        _HIGHER,
        _CALL,
        f"Prefill rate of a call | computed prompt tokens / prefill time | {_REQ}",
    ),
    _metric(
        "peak_footprint_mb",
        "MB",
        _LOWER,
        _TRIAL,
        f"Peak footprint | largest memory_sampled footprint in the trial, 10^6 bytes | {_REQ}",
    ),
    _metric(
        "min_headroom_mb",
        "MB",
        _HIGHER,
        _TRIAL,
        "Least headroom | smallest limit minus footprint in the trial, 10^6 bytes | statistics.md 3.2.2",
    ),
    _metric(
        "kv_hit_rate_tokens",
        "ratio",
        _HIGHER,
        _TRIAL,
        "KV hit rate by token | cached prompt tokens / prompt tokens | runtime.md section 6",
    ),
    _metric(
        "kv_hit_rate_requests",
        "ratio",
        _HIGHER,
        _TRIAL,
        "KV hit rate by request | calls with any cached prompt token / calls | runtime.md section 6",
    ),
    _metric(
        "prompt_tokens_submitted",
        "tokens",
        _NONE,
        _TRIAL,
        "Prompt tokens submitted | sum over calls | runtime.md section 6",
    ),
    _metric(
        "prompt_tokens_computed",
        "tokens",
        _LOWER,
        _TRIAL,
        "Prompt tokens computed | sum over calls, recomputation included | runtime.md section 6",
    ),
    _metric(
        "kv_blocks_peak",
        "blocks",
        _LOWER,
        _TRIAL,
        f"Peak KV blocks in use | largest kv_sampled blocks_used | {_REQ}",
    ),
    _metric("preemptions", "count", _LOWER, _TRIAL, f"Preemptions | count of sequence_preempted | {_REQ}"),
    _metric("memory_warnings", "count", _LOWER, _TRIAL, f"Memory warnings | count of memory_warned | {_REQ}"),
    _metric("failed_calls", "count", _LOWER, _TRIAL, f"Failed calls | count of call_failed | {_REQ}"),
)

METRICS: Final = MappingProxyType({metric.name: metric for metric in _CATALOGUE})


class UnknownMetricError(KeyError):
    """No metric of this name is in the catalogue."""

    def __init__(self, name: str) -> None:
        """`name` as it was asked for."""
        super().__init__(f"no metric is named {name!r}; known: {', '.join(METRICS)}")


def metric(name: str) -> MetricDefinition:
    """The definition; raises UnknownMetricError."""
    try:
        return METRICS[name]
    except KeyError:
        raise UnknownMetricError(name) from None
