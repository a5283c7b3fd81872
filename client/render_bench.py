"""A bench report as rich renderables, pure."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from contract.bench import ArmFigures, BenchReport
from contract.rest import Spread
from measures.wording import number, percent


def bench_view(report: BenchReport) -> RenderableType:
    """Arms side by side, then what follows from them, then under what it was measured."""
    arms = Table(box=None, pad_edge=False)
    arms.add_column("")
    for mode, figures in report.arms.items():
        arms.add_column(f"{mode} (n {figures.wall_s.n})", justify="right")
    for title, cells in _rows(list(report.arms.values())):
        arms.add_row(title, *cells)
    derived = Table(box=None, pad_edge=False, show_header=False)
    derived.add_column()
    derived.add_column(justify="right")
    for title, value in _derived(report):
        derived.add_row(title, value)
    return Group(
        Text(
            f"{report.workload}, seed {report.seed}, {report.cpu}, {report.threads} threads, "
            f"{report.dtype}, tier {report.tier}"
        ),
        arms,
        derived,
        Text(_trust(report)),
    )


def _rows(arms: list[ArmFigures]) -> list[tuple[str, list[str]]]:
    return [
        ("wall, s", [_spread(arm.wall_s) for arm in arms]),
        ("first token of the first agent, s", [_spread(arm.ttft_first_s) for arm in arms]),
        ("first token of the last agent, s", [_spread(arm.ttft_last_s) for arm in arms]),
        ("inter-token latency, ms", [_spread(arm.itl_p50_ms) for arm in arms]),
        ("inter-token latency p95, ms", [_spread(arm.itl_p95_ms) for arm in arms]),
        ("prompt tokens submitted", [str(arm.prompt_tokens_submitted) for arm in arms]),
        ("prompt tokens computed", [str(arm.prompt_tokens_computed) for arm in arms]),
        ("KV hit rate", [percent(arm.kv_hit_rate_tokens * 100) for arm in arms]),
        ("peak footprint, MB", [number(arm.peak_footprint_mb) for arm in arms]),
    ]


def _derived(report: BenchReport) -> list[tuple[str, str]]:
    limits, steps = report.bound, report.decode_step_vs_bandwidth
    return [
        ("less wall than serial, %", _number(report.reduction_vs_serial_percent)),
        _by_bounds(report.reduction_vs_serial_percent, limits.reduction_percent),
        ("less wall than serial with prefix cache, %", _number(report.reduction_vs_serial_cached_percent)),
        _by_bounds(report.reduction_vs_serial_cached_percent, limits.reduction_vs_serial_cached_percent),
        ("bound of the work, s", number(limits.wall_s)),
        ("wall / bound", _number(report.wall_vs_bound)),
        ("memory read, GB/s", number(limits.read_bandwidth_bytes_per_s / 1e9)),
        ("matrix products, GFLOP/s", number(limits.matrix_product_flops / 1e9)),
        ("decode step against bandwidth, one agent", _number(steps.batch_1)),
        ("decode step against bandwidth, all agents", _number(steps.batch_5)),
        ("worst gap / median gap while a prefill arrives", _number(report.worst_gap_vs_median_itl)),
        ("pool waste, %", _number(report.pool_waste_percent)),
        ("cost of the events, % of wall", _number(report.event_cost_percent)),
        ("processor time of the events, % of wall", _number(report.event_processor_percent)),
        ("footprint above weights and live KV, MB", _number(report.footprint_above_weights_and_live_kv_mb)),
    ]


def _by_bounds(measured: float | None, of_bounds: float) -> tuple[str, str]:
    """The two arms' bounds against each other: no limit where the serial arm is further from its own."""
    exceeded = measured is not None and measured > of_bounds
    note = ", exceeded: the serial arm is further from its bound than the paged one" if exceeded else ""
    return "  by the bounds of both at the measured rates, %", f"{_number(of_bounds)}{note}"


def _trust(report: BenchReport) -> str:
    agree = {True: "every arm wrote the same tokens", False: "THE ARMS WROTE DIFFERENT TOKENS", None: ""}
    others = f"others used at most {percent(report.others_cpu_percent)} of the machine"
    if report.contaminated_runs:
        others += f"; {report.contaminated_runs} counted runs were disturbed: do not quote these figures"
    return "; ".join(part for part in (others, agree[report.outputs_agree]) if part)


def _spread(value: Spread) -> str:
    return f"{number(value.median)} ({number(value.min)} to {number(value.max)})"


def _number(value: float | None) -> str:
    return "not measured" if value is None else number(value)
