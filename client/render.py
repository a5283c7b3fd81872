"""A report as rich renderables, pure: tables of both arms, budget, reading, verdicts, texts."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from client.plain_text import operating_system
from contract.metrics import METRICS
from contract.rest import ArmReport, DeviceReportView, GateView, MetricVerdict, RunReport
from measures.wording import (
    change,
    interval,
    less_time,
    megabytes,
    moved,
    number,
    percent,
    spread,
    title,
    trials,
)

HEADLINE_METRICS = (
    *("wall_s", "ttft_ms", "agent_ttft_ms", "itl_ms", "output_tokens_per_s", "decode_tokens_per_s"),
    *("peak_footprint_mb", "kv_hit_rate_tokens", "kv_hit_rate_requests", "prompt_tokens_computed"),
    "failed_calls",
)
_VERDICT_STYLES = {"pass": "bold green", "regression": "bold red"}
_UNCERTAIN_STYLE = "bold yellow"


def report_view(report: RunReport, metrics: Sequence[str] | None = None) -> RenderableType:
    """The whole report. metrics: which rows, in this order; None for every metric that was measured."""
    opening = Text(
        f"run {report.run_id}: {report.workload} on {report.model}, "
        f"{report.candidate} against {report.baseline}, {report.outcome or report.state}"
    )
    devices = [device_view(device, report, metrics) for device in report.devices]
    address = Text(f"dashboard: {report.report_url}", overflow="fold")
    # Of several, it would ask which one is meant; where no trial ran, there is nothing to draw.
    has_trace = len(report.devices) == 1 and bool(report.devices[0].pairs)
    trace = [Text(f"trace: dynofarm trace {report.run_id}")] if has_trace else []
    return Group(opening, *devices, Rule("gate", align="left"), gate_view(report.gate), address, *trace)


def device_view(
    device: DeviceReportView, report: RunReport, metrics: Sequence[str] | None = None
) -> RenderableType:
    """One job on one device; figures of two devices never share a table."""
    name = f"{device.device_id} ({device.device_model}, {operating_system(device)})"
    parts: list[RenderableType] = [Rule(f"{name} {device.variant}".strip(), align="left")]
    if device.virtual:
        parts.append(Text("an emulated device: nothing here was measured on a phone", style="yellow"))
    if device.wall_reduction_percent is not None and device.speedup is not None:
        gain = less_time(device.wall_reduction_percent, device.speedup)
        parts.append(Text(f"{report.candidate} against {report.baseline}: {gain}", style="bold"))
    if device.arms:
        arms = _ordered(device, report)
        parts += [_metrics_table(arms, metrics), _agents_table(arms)]
        if any(arm.budget for arm in arms):
            parts.append(_budget_table(arms))
    parts += _listed("reading", device.reading)
    if device.verdicts:
        parts.append(verdicts_table(device.verdicts))
    parts += _listed("what went wrong", device.failures)
    parts += _listed("what the agents wrote", device.sample_texts)
    return Group(*parts)


def gate_view(gate: GateView) -> RenderableType:
    """The verdict of the run, its exit code and why."""
    verdict = Text(f"{gate.verdict}, exit code {int(gate.exit_code)}")
    verdict.stylize(_VERDICT_STYLES.get(gate.verdict, _UNCERTAIN_STYLE))
    return Group(verdict, Padding(Text(gate.reason), (0, 0, 0, 2)))


def verdicts_table(verdicts: Sequence[MetricVerdict]) -> RenderableType:
    """One row per gated metric; change and interval in per cent of the baseline."""
    table = _table("metric", "verdict", "change", "interval", "p", "pairs", "detectable")
    for verdict in verdicts:
        pairs = str(verdict.pairs)
        table.add_row(
            title(verdict.metric),
            verdict.verdict.replace("_", " "),
            change(verdict.change_percent),
            interval(verdict.interval_percent, verdict.interval_confidence),
            "–" if verdict.p_value is None else number(verdict.p_value),
            f"{pairs} ({verdict.pairs_dropped} dropped)" if verdict.pairs_dropped else pairs,
            percent(verdict.mde_percent),
        )
    return table


def _ordered(device: DeviceReportView, report: RunReport) -> list[ArmReport]:
    """Baseline first, candidate second, then the others."""
    first = [arm for arm in (report.baseline, report.candidate) if arm in device.arms]
    names = dict.fromkeys([*first, *device.arms])
    return [device.arms[name] for name in names]


def _metrics_table(arms: Sequence[ArmReport], metrics: Sequence[str] | None) -> Table:
    with_change = len(arms) == 2
    heads = [f"{arm.arm}, {trials(arm)}" for arm in arms]
    table = _table("median (range)", *heads, *(["change"] if with_change else []))
    measured = {name for arm in arms for name in arm.metrics}
    known = [name for name in METRICS if name in measured]
    for name in metrics if metrics is not None else [*known, *sorted(measured - set(known))]:
        values = [arm.metrics.get(name) for arm in arms]
        if any(values):
            cells = [spread(name, value) for value in values]
            table.add_row(title(name), *cells, *([moved(name, *values)] if with_change else []))
    return table


def _agents_table(arms: Sequence[ArmReport]) -> RenderableType:
    """TTFT of each agent from the trial's start."""
    agents = list(dict.fromkeys(agent for arm in arms for agent in arm.agent_ttft_ms))
    if not agents:
        return Group()
    table = _table("first token of", *(arm.arm for arm in arms))
    for agent in agents:
        table.add_row(agent, *(spread("agent_ttft_ms", arm.agent_ttft_ms.get(agent)) for arm in arms))
    return table


def _budget_table(arms: Sequence[ArmReport]) -> Table:
    table = _table("memory budget", *(arm.arm for arm in arms), "note")
    names = dict.fromkeys(row.name for arm in arms for row in arm.budget)
    sizes = [{row.name: row.size_bytes for row in arm.budget} for arm in arms]
    notes = {row.name: row.note for arm in arms for row in arm.budget if row.note}
    for name in names:
        cells = [megabytes(size[name]) if name in size else "–" for size in sizes]
        table.add_row(name, *cells, notes.get(name, ""))
    return table


def _table(*heads: str) -> Table:
    table = Table(show_edge=False, pad_edge=False, header_style="bold", padding=(0, 1))
    for position, head in enumerate(heads):
        # Folded, never cut: a figure must not be lost on a narrow terminal.
        table.add_column(head, overflow="fold", justify="left" if position == 0 else "right")
    return table


def _listed(heading: str, lines: Sequence[str]) -> list[RenderableType]:
    if not lines:
        return []
    entries = [Padding(Text(f"- {line}", overflow="fold"), (0, 0, 0, 2)) for line in lines]
    return [Text(heading, style="bold"), *entries]
