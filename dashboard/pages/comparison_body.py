"""What two runs have in common and what not: conditions, figure, table."""

from typing import Final

from dash import dcc, html
from dash.development.base_component import Component

from contract.metrics import METRICS
from contract.rest import Comparison, DeviceReportView, Spread
from dashboard.figures.comparison import spreads_figure
from dashboard.figures.theme import number, subject_of
from dashboard.parts.badges import virtual_badge
from dashboard.parts.panels import graph, notice, panel
from dashboard.parts.tables import Column, Content, table
from dashboard.wording import change, is_better, metric_definition, metric_title, spread_span

_COLUMNS: Final = (
    Column("Metric"),
    Column("Baseline run", is_number=True),
    Column("This run", is_number=True),
    Column("Change", is_number=True),
)


def comparison_body(
    found: Comparison, before: DeviceReportView | None, after: DeviceReportView | None
) -> list[Component]:
    """before, after: the results compared, where their reports could be read."""
    body: list[Component] = []
    if found.differs:
        listed = html.Ul([html.Li(difference) for difference in found.differs])
        body.append(panel("Conditions that are not the same", [listed]))
    body.append(html.P([found.note, *_marks(before, after)], className="lead"))
    if not found.metrics:
        nothing = ["The two runs have no metric in common; choose another arm."]
        return [*body, notice("empty", "Nothing to show.", nothing)]
    body.append(_figure(found, before, after))
    order = [name for name in METRICS if name in found.metrics]
    order += sorted(found.metrics.keys() - METRICS.keys())
    rows = [_row(name, found) for name in order]
    body.append(panel(f"Arm {found.arm}", [table(_COLUMNS, rows, "Both runs, metric by metric")]))
    return body


def refusal_notice(detail: str, anyway: str) -> Component:
    """Why the two are not compared, and the address that compares them all the same."""
    body: list[Component | str] = [
        f"{detail} ",
        dcc.Link("Compare all the same", href=anyway, className="button"),
    ]
    return notice("error", "These runs did not measure the same thing.", body)


def _marks(*results: DeviceReportView | None) -> list[Component | str]:
    return [" ", virtual_badge()] if any(found is not None and found.virtual for found in results) else []


def _figure(found: Comparison, before: DeviceReportView | None, after: DeviceReportView | None) -> Component:
    """One figure for one device model; two models never share one, whoever asks."""
    if before is None or after is None:
        why = ["Their reports could not be read just now; the table has the figures. Reload the page."]
        return notice("error", "No figure.", why)
    if before.device_model != after.device_model:
        models = f"{before.device_model} and {after.device_model}"
        why = [f"{models} are different device models, and a figure never mixes them. The table has both."]
        return notice("hint", "No figure.", why)
    return graph(spreads_figure(found, subject_of(after)))


def _row(name: str, found: Comparison) -> list[Content]:
    before, after = found.metrics[name]
    percent = found.change_percent.get(name)
    return [
        html.Span(metric_title(name), title=metric_definition(name)),
        _spread(before),
        _spread(after),
        [change(percent) if percent is not None else "–", _direction(name, found)],
    ]


def _spread(spread: Spread) -> Content:
    return [html.Strong(number(spread.median)), html.Div(spread_span(spread), className="quiet")]


def _direction(name: str, found: Comparison) -> Component | str:
    """Better or worse in words, where the trials of the two lie apart; no verdict even then."""
    percent, is_beyond = found.change_percent.get(name), found.beyond_noise.get(name)
    better = is_better(name, percent) if percent is not None else None
    if better is None:
        return ""
    if not is_beyond:
        text = "too few trials to say" if is_beyond is None else "within the noise"
        return html.Div(text, className="quiet")
    return html.Div("better" if better else "worse", className="better" if better else "worse")
