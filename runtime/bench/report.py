"""From runs to the report: which runs count, and every figure that is more than one run's own."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from contract.bench import ArmFigures, BenchReport, BenchRequest, BenchRun, Bound, DecodeVsBandwidth
from contract.events import Conditions, MemoryBudgeted
from contract.jobs import ArmMode
from measures.metrics.change import reduction_percent
from measures.metrics.spread import spread_of
from runtime.bench import bound
from runtime.bench.arriving_prefill import worst_gap_vs_median_itl
from runtime.bench.figures import TrialFigures, pool_waste_percent, trial_figures
from runtime.bench.recording import WITHOUT_EVENTS
from runtime.bench.session import ARM_MODES, Measured, Run
from runtime.model.config import ModelConfig
from runtime.model.numeric import Placement

_BYTES_PER_MB = 1e6


@dataclass(frozen=True, slots=True)
class Rates:
    """Medians of the machine's rates as measured between the rounds."""

    read_bytes_per_s: float
    product_flops: float


@dataclass(frozen=True, slots=True)
class Findings:
    """All that was measured. config: the model's shape; shared_tokens: those that all prompts begin with."""

    request: BenchRequest
    main: Measured
    arriving: Measured
    rates: Rates
    config: ModelConfig
    shared_tokens: int


@dataclass(frozen=True, slots=True)
class _Counted:
    """The runs of one arm that count, with their figures."""

    runs: tuple[Run, ...]
    figures: tuple[TrialFigures, ...]


def counted_runs(runs: Iterable[Run], wanted: int) -> tuple[Run, ...]:
    """The `wanted` runs in which others used least, in the order in which they ran: clean ones come first."""
    kept = sorted(runs, key=lambda run: run.others_cpu_percent)[:wanted]
    return tuple(sorted(kept, key=lambda run: (run.round, run.events.facts.started_ns)))


def build_report(found: Findings) -> BenchReport:
    """The report; an arm that did not run leaves its figures None."""
    request, conditions = found.request, found.main.conditions
    if conditions is None:
        raise ValueError("nothing was measured: ask for at least one repeat of an arm")
    counted = {arm: _counted(found, arm, times) for arm, times in wanted_runs(request).items() if times}
    arms = {ARM_MODES[arm]: _arm(counted[arm].figures) for arm in counted if arm != WITHOUT_EVENTS}
    walls = {mode: figures.wall_s.median for mode, figures in arms.items()}
    costs = _costs(found, Placement.named(conditions.dtype, "cpu").value_bytes)
    limits = _bound(found, counted, costs)
    kept = [run for each in counted.values() for run in each.runs]
    paged = counted.get("paged")
    budget = found.main.budgets.get("paged")
    return BenchReport(
        workload=request.workload.name,
        workload_digest=request.workload.digest,
        seed=request.seed,
        model=request.model,
        model_digest=conditions.model_digest,
        tier=conditions.tier,
        dtype=conditions.dtype,
        threads=conditions.threads or 0,
        cpu=conditions.cpu,
        cores=conditions.cores or 0,
        arms=arms,
        reduction_vs_serial_percent=_reduction(walls, "serial"),
        reduction_vs_serial_cached_percent=_reduction(walls, "serial_cached"),
        bound=limits,
        wall_vs_bound=walls["paged"] / limits.wall_s if "paged" in walls else None,
        decode_step_vs_bandwidth=_decode(found, counted, costs),
        worst_gap_vs_median_itl=_median(
            gap for run in found.arriving.runs if (gap := worst_gap_vs_median_itl(run.events)) is not None
        ),
        pool_waste_percent=_waste(paged, budget, found.shared_tokens),
        event_cost_percent=_event_cost(found.main.runs, request.others_cpu_percent_max),
        event_processor_percent=_event_processor(paged),
        footprint_above_weights_and_live_kv_mb=_footprint_above(paged, budget),
        others_cpu_percent=max((run.others_cpu_percent for run in kept), default=0.0),
        contaminated_runs=sum(run.others_cpu_percent > request.others_cpu_percent_max for run in kept),
        outputs_agree=_outputs_agree(kept),
        runs=[_run(run, run in kept) for run in (*found.main.runs, *found.arriving.runs)],
        conditions=_conditions(conditions),
    )


def wanted_runs(request: BenchRequest) -> dict[str, int]:
    """Arm to the number of runs that are to count."""
    wanted: dict[str, int] = {
        arm: request.repeats.get(mode, 0) for arm, mode in ARM_MODES.items() if arm != WITHOUT_EVENTS
    }
    return {**wanted, WITHOUT_EVENTS: request.without_events_repeats}


def _counted(found: Findings, arm: str, times: int) -> _Counted:
    runs = counted_runs((run for run in found.main.runs if run.arm == arm), times)
    return _Counted(runs, tuple(trial_figures(run.events) for run in runs))


def _arm(figures: Sequence[TrialFigures]) -> ArmFigures:
    firsts = [each.ttft_s.values() for each in figures]
    return ArmFigures(
        wall_s=spread_of(each.wall_s for each in figures),
        ttft_first_s=spread_of(min(of_agents) for of_agents in firsts),
        ttft_last_s=spread_of(max(of_agents) for of_agents in firsts),
        itl_p50_ms=spread_of(each.itl_p50_ms or 0.0 for each in figures),
        itl_p95_ms=spread_of(each.itl_p95_ms or 0.0 for each in figures),
        prompt_tokens_submitted=round(statistics.median(each.prompt_tokens_submitted for each in figures)),
        prompt_tokens_computed=round(statistics.median(each.prompt_tokens_computed for each in figures)),
        kv_hit_rate_tokens=statistics.median(each.kv_hit_rate_tokens for each in figures),
        peak_footprint_mb=statistics.median(each.peak_footprint_mb for each in figures),
    )


def _reduction(walls: Mapping[ArmMode, float], baseline: ArmMode) -> float | None:
    if "paged" not in walls or baseline not in walls:
        return None
    return reduction_percent(walls[baseline], walls["paged"])


def _costs(found: Findings, value_bytes: int) -> bound.Costs:
    """KV as the arm held it. Of the weights, what a step has to read and no more: every linear and the head.

    Counted from the shape: what a tier holds beside them (another copy, scales, an embedding whose rows are
    looked up) would only make its steps look closer to the bandwidth.
    """
    budget = next(iter(found.main.budgets.values()))
    config = found.config
    attention = config.hidden * (2 * config.q_width + 2 * config.kv_width)
    weights = config.layers * (attention + 3 * config.hidden * config.ffn) + config.vocab * config.hidden
    return bound.Costs(
        config=config,
        step_bytes=weights * (1 if found.request.engine.weight_dtype == "int8" else value_bytes),
        token_bytes=budget.block_size_bytes // budget.block_tokens,
        read_bytes_per_s=found.rates.read_bytes_per_s,
        product_flops=found.rates.product_flops,
    )


def _bound(found: Findings, counted: Mapping[str, _Counted], costs: bound.Costs) -> Bound:
    run = next(each.runs[0] for arm, each in counted.items() if arm != WITHOUT_EVENTS)
    calls: dict[str, list[tuple[int, int]]] = {}
    for call in sorted(run.events.facts.calls, key=lambda call: (call.agent, call.call)):
        if call.finished is not None:
            tokens = (call.finished.prompt_tokens, call.finished.output_tokens)
            calls.setdefault(call.agent, []).append(tokens)
    work = bound.Work(tuple(bound.agent_work(each) for each in calls.values()), found.shared_tokens)
    least_s = bound.paged_s(work, costs)
    return Bound(
        wall_s=least_s,
        reduction_percent=(1.0 - least_s / bound.serial_s(work, costs)) * 100.0,
        reduction_vs_serial_cached_percent=(1.0 - least_s / bound.serial_cached_s(work, costs)) * 100.0,
        read_bandwidth_bytes_per_s=costs.read_bytes_per_s,
        matrix_product_flops=costs.product_flops,
    )


def _decode(found: Findings, counted: Mapping[str, _Counted], costs: bound.Costs) -> DecodeVsBandwidth:
    agents = len(found.request.workload.agents)
    alone = counted.get("serial-cached") or counted.get("serial")
    return DecodeVsBandwidth(
        batch_1=_step_share(alone, 1, found.shared_tokens, costs),
        batch_5=_step_share(counted.get("paged"), agents, found.shared_tokens, costs),
    )


def _step_share(counted: _Counted | None, batch: int, shared_tokens: int, costs: bound.Costs) -> float | None:
    if counted is None:
        return None
    return _median(
        bound.step_s(step.context_tokens, shared_tokens, costs) / (step.duration_ns / 1e9)
        for run in counted.runs
        for step in run.events.decode_steps
        if len(step.context_tokens) == batch
    )


def _waste(paged: _Counted | None, budget: MemoryBudgeted | None, shared_tokens: int) -> float | None:
    if paged is None or budget is None:
        return None
    return _median(
        waste
        for run in paged.runs
        if (waste := pool_waste_percent(run.events, budget.block_tokens, shared_tokens)) is not None
    )


def _footprint_above(paged: _Counted | None, budget: MemoryBudgeted | None) -> float | None:
    if paged is None or budget is None:
        return None
    weights_bytes = next(row.size_bytes for row in budget.rows if row.name == "weights")
    return _median(
        each.peak_footprint_mb
        - (weights_bytes + (each.blocks_peak or 0) * budget.block_size_bytes) / _BYTES_PER_MB
        for each in paged.figures
    )


def _event_cost(runs: Sequence[Run], others_percent_max: float) -> float | None:
    """Of rounds that ran both undisturbed: what events added to the wall, relative to that without them."""
    walls = {
        (run.arm, run.round): trial_figures(run.events).wall_s
        for run in runs
        if run.others_cpu_percent <= others_percent_max
    }
    rounds = sorted({number for arm, number in walls if arm == "paged"})
    return _median(
        (walls["paged", number] / walls[WITHOUT_EVENTS, number] - 1.0) * 100.0
        for number in rounds
        if (WITHOUT_EVENTS, number) in walls
    )


def _event_processor(paged: _Counted | None) -> float | None:
    if paged is None:
        return None
    return _median(
        run.events_ns / 1e9 / figures.wall_s * 100.0
        for run, figures in zip(paged.runs, paged.figures, strict=True)
        if run.events_ns is not None
    )


def _outputs_agree(kept: Sequence[Run]) -> bool | None:
    made = {digest for run in kept if (digest := run.events.output_sha256)}
    return len(made) == 1 if made else None


def _run(run: Run, is_counted: bool) -> BenchRun:  # noqa: FBT001 - a field of the result
    figures = trial_figures(run.events)
    return BenchRun(
        arm=run.arm,
        round=run.round,
        wall_s=figures.wall_s,
        ttft_s=figures.ttft_s,
        itl_p50_ms=figures.itl_p50_ms,
        itl_p95_ms=figures.itl_p95_ms,
        others_cpu_percent=run.others_cpu_percent,
        counted=is_counted,
        output_sha256=run.events.output_sha256,
    )


def _conditions(conditions: Conditions) -> dict[str, object]:
    return conditions.model_dump(mode="json")


def _median(values: Iterable[float]) -> float | None:
    kept = list(values)
    return statistics.median(kept) if kept else None
