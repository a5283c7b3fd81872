"""The metric catalogue, as data: each metric's name, unit, direction and definition stand here once.

Names follow vLLM's split (ITL is every gap, TPOT their mean); units are in the names. To add a
metric: a line here and its formula in measures/metrics, nothing else (docs/adr/0002).
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


class Need(StrEnum):
    """What a run must have for a metric to have a value."""

    TWO_OUTPUT_TOKENS = "two_output_tokens"
    KV_POOL = "kv_pool"
    MEMORY_LIMIT = "memory_limit"


class MetricDefinition(ContractModel):
    """floor_percent: a change smaller than this is not a regression.

    Any metric with a direction may gate, but counts and shares: `GateRequest.metrics` chooses.
    """

    name: str
    title: str
    unit: str
    better: Better
    scope: Scope
    definition: str
    source: str
    floor_percent: float = 2.0
    needs: Need | None = None
    """Without it there is no value, so a gate on the metric is refused."""


_CATALOGUE = (
    MetricDefinition(
        name="wall_s",
        title="Wall time",
        unit="s",
        better=Better.LOWER,
        scope=Scope.TRIAL,
        definition="trial_finished minus trial_started",
        source="docs/adr/0002",
    ),
    MetricDefinition(
        name="ttft_ms",
        title="Time to first token",
        unit="ms",
        better=Better.LOWER,
        scope=Scope.CALL,
        definition="first token_emitted minus call_arrived, queueing included",
        source="names of vLLM's serving benchmark",
        floor_percent=3.0,
    ),
    MetricDefinition(
        name="agent_ttft_ms",
        title="Agent's time to first token",
        unit="ms",
        better=Better.LOWER,
        scope=Scope.AGENT,
        definition="first token of the agent's first call minus trial_started",
        source="docs/adr/0002",
    ),
    MetricDefinition(
        name="queue_ms",
        title="Queue time",
        unit="ms",
        better=Better.LOWER,
        scope=Scope.CALL,
        definition="call_admitted minus call_arrived",
        source="names of vLLM's serving benchmark",
    ),
    MetricDefinition(
        name="prefill_ms",
        title="Prefill time",
        unit="ms",
        better=Better.LOWER,
        scope=Scope.CALL,
        definition="first token_emitted minus call_admitted",
        source="names of vLLM's serving benchmark",
    ),
    MetricDefinition(
        name="itl_ms",
        title="Inter-token latency",
        unit="ms",
        better=Better.LOWER,
        scope=Scope.CALL,
        definition="median gap between a call's neighbouring tokens",
        source="names of vLLM's serving benchmark",
        needs=Need.TWO_OUTPUT_TOKENS,
    ),
    MetricDefinition(
        name="itl_p95_ms",
        title="Inter-token latency, p95",
        unit="ms",
        better=Better.LOWER,
        scope=Scope.CALL,
        definition="95th percentile of the call's gaps",
        source="names of vLLM's serving benchmark",
        needs=Need.TWO_OUTPUT_TOKENS,
    ),
    MetricDefinition(
        name="tpot_ms",
        title="Time per output token",
        unit="ms",
        better=Better.LOWER,
        scope=Scope.CALL,
        definition="(last token minus first token) / (output tokens - 1)",
        source="names of vLLM's serving benchmark",
        needs=Need.TWO_OUTPUT_TOKENS,
    ),
    MetricDefinition(
        name="e2e_ms",
        title="End-to-end latency",
        unit="ms",
        better=Better.LOWER,
        scope=Scope.CALL,
        definition="call_finished minus call_arrived",
        source="names of vLLM's serving benchmark",
    ),
    MetricDefinition(
        name="output_tokens_per_s",
        title="Output tokens per second",
        unit="tokens/s",
        better=Better.HIGHER,
        scope=Scope.TRIAL,
        definition="output tokens of all agents / wall time",
        source="docs/adr/0002",
    ),
    MetricDefinition(
        name="decode_tokens_per_s",
        title="Decode rate of a call",
        unit="tokens/s",
        better=Better.HIGHER,
        scope=Scope.CALL,
        definition="(output tokens - 1) / (last token minus first token)",
        source="docs/adr/0002",
        needs=Need.TWO_OUTPUT_TOKENS,
    ),
    MetricDefinition(
        name="prefill_tokens_per_s",
        title="Prefill rate of a call",
        unit="tokens/s",
        better=Better.HIGHER,
        scope=Scope.CALL,
        definition="computed prompt tokens / prefill time",
        source="docs/adr/0002",
    ),
    MetricDefinition(
        name="peak_footprint_mb",
        title="Peak footprint",
        unit="MB",
        better=Better.LOWER,
        scope=Scope.TRIAL,
        definition="largest memory_sampled footprint in the trial, 10^6 bytes",
        source="docs/adr/0002",
        floor_percent=1.0,
    ),
    MetricDefinition(
        name="min_headroom_mb",
        title="Least headroom",
        unit="MB",
        better=Better.HIGHER,
        scope=Scope.TRIAL,
        definition="smallest limit minus footprint in the trial, 10^6 bytes",
        source="docs/adr/0002",
        needs=Need.MEMORY_LIMIT,
    ),
    MetricDefinition(
        name="kv_hit_rate_tokens",
        title="KV hit rate by token",
        unit="ratio",
        better=Better.HIGHER,
        scope=Scope.TRIAL,
        definition="cached prompt tokens / prompt tokens",
        source="docs/adr/0002",
    ),
    MetricDefinition(
        name="kv_hit_rate_requests",
        title="KV hit rate by request",
        unit="ratio",
        better=Better.HIGHER,
        scope=Scope.TRIAL,
        definition="calls with any cached prompt token / calls",
        source="docs/adr/0002",
    ),
    MetricDefinition(
        name="prompt_tokens_submitted",
        title="Prompt tokens submitted",
        unit="tokens",
        better=Better.NONE,
        scope=Scope.TRIAL,
        definition="sum over calls",
        source="docs/adr/0002",
    ),
    MetricDefinition(
        name="prompt_tokens_computed",
        title="Prompt tokens computed",
        unit="tokens",
        better=Better.LOWER,
        scope=Scope.TRIAL,
        definition="sum over calls, recomputation included",
        source="docs/adr/0002",
    ),
    MetricDefinition(
        name="kv_blocks_peak",
        title="Peak KV blocks in use",
        unit="blocks",
        better=Better.LOWER,
        scope=Scope.TRIAL,
        definition="most blocks held at once, by block events; where some are lost, by kv_sampled",
        source="docs/adr/0002",
        needs=Need.KV_POOL,
    ),
    MetricDefinition(
        name="preemptions",
        title="Preemptions",
        unit="count",
        better=Better.LOWER,
        scope=Scope.TRIAL,
        definition="count of sequence_preempted",
        source="docs/adr/0002",
    ),
    MetricDefinition(
        name="memory_warnings",
        title="Memory warnings",
        unit="count",
        better=Better.LOWER,
        scope=Scope.TRIAL,
        definition="count of memory_warned",
        source="docs/adr/0002",
    ),
    MetricDefinition(
        name="failed_calls",
        title="Failed calls",
        unit="count",
        better=Better.LOWER,
        scope=Scope.TRIAL,
        definition="count of call_failed",
        source="docs/adr/0002",
    ),
)

METRICS: Final = MappingProxyType({metric.name: metric for metric in _CATALOGUE})


class UnknownMetricError(KeyError):
    """No metric of this name is in the catalogue."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no metric is named {name!r}; known: {', '.join(METRICS)}")


def metric(name: str) -> MetricDefinition:
    """The definition; raises UnknownMetricError."""
    try:
        return METRICS[name]
    except KeyError:
        raise UnknownMetricError(name) from None
