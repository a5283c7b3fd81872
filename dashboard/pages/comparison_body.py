"""What two runs have in common and what not: conditions, figure, table."""

from typing import Final

from dash import dcc, html
from dash.development.base_component import Component

from contract.metrics import METRICS
from contract.rest import Comparison, DeviceReportView
from dashboard.figures.comparison import spreads_figure
from dashboard.figures.theme import subject_of
from dashboard.pages.run_report import metric_name, spread_cell
from dashboard.parts.badges import virtual_badge
from dashboard.parts.panels import graph, notice, panel
from dashboard.parts.tables import Column, Content, table
from measures.wording import apart, moved, typeset

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
    # No colour and no "worse": the two were not measured in pairs, so nothing here is a verdict.
    noise = html.Div(apart(found, name), className="quiet")
    return [
        metric_name(name),
        spread_cell(name, before),
        spread_cell(name, after),
        [typeset(moved(name, before, after)), noise],
    ]
