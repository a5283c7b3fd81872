"""What came out of a run: the gate, then every device on its own with figures, tables, reading and texts."""

from collections.abc import Sequence
from typing import Any, Final

from dash import html
from dash.development.base_component import Component

from contract.events import Conditions
from contract.metrics import METRICS
from contract.rest import ArmReport, DeviceReportView, GateView, MetricVerdict, RunReport, Spread
from dashboard.figures.pairs import paired_wall_figure
from dashboard.figures.theme import number, signed_percent
from dashboard.figures.ttft import ttft_spread_figure
from dashboard.figures.verdicts import verdict_figure
from dashboard.pages.run_head import facts_list
from dashboard.parts.badges import badge, virtual_badge
from dashboard.parts.panels import graph, grid, notice, panel, tile
from dashboard.parts.tables import Column, Content, table
from dashboard.wording import gate_verdict, metric_definition, sentence, words
from measures import wording
from measures.wording import typeset

_GATE_COLUMNS: Final = (
    Column("Metric"),
    Column("Verdict"),
    Column("Change", is_number=True),
    Column("Interval", is_number=True),
    Column("p", is_number=True),
    Column("Pairs", is_number=True),
    Column("Smallest detectable", is_number=True),
    Column("Floor", is_number=True),
    Column("Why"),
)
_BUDGET_COLUMNS: Final = (Column("What"), Column("Size", is_number=True), Column("Note"))


def report_body(report: RunReport) -> list[Component]:
    """The gate and every device's results; a run without any says where to look."""
    if not report.devices:
        body = ["No attempt has left a result. The jobs above say why, and what to try."]
        return [_gate(report.gate), notice("empty", "No results.", body)]
    return [_gate(report.gate), *(_device(found, report) for found in report.devices)]


def _gate(gate: GateView) -> Component:
    told: list[Component | str] = [html.Strong(f"Gate: {gate_verdict(gate)}."), f" {sentence(gate.reason)}"]
    return html.Div(told, className=f"gate gate-{gate.verdict}", role="status")


def _device(found: DeviceReportView, report: RunReport) -> Component:
    arms = arm_order(found, report.baseline, report.candidate)
    marks: list[Component | str] = [" ", virtual_badge()] if found.virtual else []
    variant = f", {found.variant}" if found.variant else ""
    caution: list[Component] = [
        html.P("An emulated device: nothing here was measured on a phone.", className="caution")
    ]
    verdicts = [graph(verdict_figure(found, report.baseline, report.candidate))] if found.verdicts else []
    return html.Section(
        [
            html.H2([f"{found.device_model}{variant}", *marks], className="device-title"),
            html.P(f"{found.device_id}, {words(found.kind)}, {_system(found)}", className="lead"),
            *(caution if found.virtual else []),
            _tiles(found, report),
            *([_failures(found.failures)] if found.failures else []),
            grid([graph(paired_wall_figure(found, arms)), graph(ttft_spread_figure(found, arms))]),
            grid([*verdicts, *([_reading(found.reading)] if found.reading else [])]),
            *([_verdicts(found.verdicts)] if found.verdicts else []),
            _metrics(found, arms),
            grid([_budget(found.arms[arm]) for arm in arms if found.arms[arm].budget]),
            *([_texts(found.sample_texts)] if found.sample_texts else []),
            _conditions(found.conditions),
        ],
        className="device",
    )


def _system(found: DeviceReportView) -> str:
    """The system's name is among the recorded conditions, where there are any."""
    name = found.conditions.os_name if found.conditions is not None else "system"
    return f"{name} {found.os_version}"


def arm_order(found: DeviceReportView, baseline: str, candidate: str) -> list[str]:
    """The device's arms: baseline, candidate, then the others as they were given."""
    first = [arm for arm in (baseline, candidate) if arm in found.arms]
    return [*first, *(arm for arm in found.arms if arm not in first)]


def _tiles(found: DeviceReportView, report: RunReport) -> Component:
    """Reduction and speed-up stand side by side: they are two figures, and neither is a token rate."""
    walls = [
        tile(f"Wall time, {arm}", f"{number(spread.median)} s", typeset(wording.span("wall_s", spread)))
        for arm in (report.baseline, report.candidate)
        if arm in found.arms and (spread := found.arms[arm].metrics.get("wall_s"))
    ]
    against = f"{report.candidate} against {report.baseline}, medians"
    return html.Div(
        [
            tile("Reduction", typeset(wording.reduction(found.wall_reduction_percent)), against),
            tile("Speed-up", wording.speedup(found.speedup), against),
            *walls,
        ],
        className="tiles",
    )


def _failures(failures: Sequence[str]) -> Component:
    return panel("What went wrong, and what to try", [html.Ul([html.Li(text) for text in failures])])


def _reading(sentences: Sequence[str]) -> Component:
    return panel("Reading", [html.Ul([html.Li(sentence) for sentence in sentences])], class_name="")


def _verdicts(verdicts: Sequence[MetricVerdict]) -> Component:
    rows = [_verdict_row(verdict) for verdict in verdicts]
    return panel("Verdicts", [table(_GATE_COLUMNS, rows, "Verdict on each judged metric")])


def _verdict_row(verdict: MetricVerdict) -> list[Content]:
    dropped = f" ({verdict.pairs_dropped} dropped)" if verdict.pairs_dropped else ""
    return [
        metric_name(verdict.metric),
        badge(verdict.verdict),
        signed_percent(verdict.change_percent),
        typeset(wording.interval(verdict.interval_percent, verdict.interval_confidence)),
        number(verdict.p_value) if verdict.p_value is not None else wording.NONE,
        f"{verdict.pairs}{dropped}",
        typeset(wording.percent(verdict.mde_percent)),
        f"{verdict.floor_percent:g} %",
        verdict.reason or "–",
    ]


def metric_name(name: str) -> Component:
    """Title with its unit; what is measured, on hover."""
    return html.Span(wording.title_with_unit(name), title=metric_definition(name))


def _metrics(found: DeviceReportView, arms: Sequence[str]) -> Component:
    """Every metric that an arm has, in the catalogue's order, unknown ones last."""
    present = {name for arm in arms for name in found.arms[arm].metrics}
    names = [name for name in METRICS if name in present] + sorted(present - METRICS.keys())
    columns = [Column("Metric"), *(Column(arm, is_number=True) for arm in arms)]
    rows: list[list[Content]] = [
        [metric_name(name), *(spread_cell(name, found.arms[arm].metrics.get(name)) for arm in arms)]
        for name in names
    ]
    trials: list[Content] = [wording.trials(found.arms[arm]) for arm in arms]
    caption = "Medians over trials, with the smallest and greatest value"
    return panel("Metrics", [table(columns, [["Trials", *trials], *rows], caption)])


def spread_cell(name: str, spread: Spread | None) -> Content:
    """Median, and below it the range; the unit stands in the row's name."""
    if spread is None:
        return wording.NONE
    span = html.Div(typeset(wording.span(name, spread)), className="quiet")
    return [html.Strong(typeset(wording.median(name, spread))), span]


def _budget(arm: ArmReport) -> Component:
    rows: list[list[Content]] = [
        [row.name, typeset(wording.megabytes(row.size_bytes)), row.note or "–"] for row in arm.budget
    ]
    title = f"Memory budget, {arm.arm}"
    return panel(title, [table(_BUDGET_COLUMNS, rows, f"Memory budget of the arm {arm.arm}")], class_name="")


def _texts(texts: Sequence[str]) -> Component:
    quotes = [html.Blockquote(text) for text in texts]
    return panel("What the agents wrote", [html.Div(quotes, className="texts")])


def _conditions(conditions: Conditions | None) -> Component:
    if conditions is None:
        return panel("Conditions", [html.P("The runtime recorded none.")])
    recorded = conditions.model_dump(mode="json", exclude_defaults=True)
    facts: list[tuple[str, Content]] = [
        _condition(name, value) for name, value in recorded.items() if value not in (None, "", {})
    ]
    return html.Details(
        [html.Summary("Conditions under which it was measured"), facts_list(facts)], className="panel"
    )


def _condition(name: str, value: Any) -> tuple[str, Content]:
    """Name and value as a person reads them; a size in bytes becomes MB."""
    if name.endswith("_bytes") and isinstance(value, int):
        return words(name.removesuffix("_bytes")), typeset(wording.megabytes(value))
    return words(name), _value(value)


def _value(value: Any) -> str:
    """A recorded value as text; a nested one as name and value pairs."""
    match value:
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return number(value)
        case dict():
            return ", ".join(f"{words(str(name))}: {_nested(inner)}" for name, inner in value.items())
        case list():
            return ", ".join(map(_nested, value))
    return str(value)


def _nested(value: Any) -> str:
    return f"({_value(value)})" if isinstance(value, dict | list) else _value(value)
