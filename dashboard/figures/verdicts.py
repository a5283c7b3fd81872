"""The verdicts of one device: change with its interval, against the floor below which nothing is judged."""

from collections.abc import Sequence
from typing import Final

import plotly.graph_objects as go

from contract.rest import DeviceReportView, MetricVerdict
from dashboard.figures.sketch import Sketch, empty_figure
from dashboard.figures.theme import (
    BLUE,
    GREEN,
    GREY,
    OCHRE,
    VERMILION,
    plain,
    signed_percent,
    subject_of,
)
from measures.wording import interval, title, typeset

VERDICT_COLOURS: Final = {
    "improved": GREEN,
    "regressed": VERMILION,
    "same": BLUE,
    "small_change": BLUE,
    "inconclusive": OCHRE,
}
_FLOOR_FILL: Final = "rgba(123, 130, 140, 0.18)"
_BELOW_NAME: Final = 0.16


def verdict_figure(report: DeviceReportView, baseline: str, candidate: str) -> go.Figure:
    """Change of each judged metric in percent of the baseline arm; band: the floor, bar: the interval."""
    title = f"Change from {baseline} to {candidate}"
    judged = [verdict for verdict in report.verdicts if _drawable(verdict)]
    if not judged:
        return empty_figure(title, subject_of(report), _why_nothing(report.verdicts))
    sketch = Sketch(title, subject_of(report))
    sketch.axes("change (% of baseline)", "")
    sketch.x_axis(showgrid=True, zeroline=False, ticksuffix=" %", nticks=5)
    sketch.name_rows([_told(verdict) for verdict in judged])
    sketch.upright(0.0, GREY)
    sketch.x_span([0.0, *(end for verdict in judged for end in _ends(verdict))])
    for row, verdict in enumerate(judged):
        _draw(sketch, row, verdict)
    return sketch.figure()


def _drawable(verdict: MetricVerdict) -> bool:
    return verdict.change_percent is not None


def _why_nothing(verdicts: Sequence[MetricVerdict]) -> str:
    return verdicts[0].reason if verdicts else "Nothing to judge: the run has one arm."


def _draw(sketch: Sketch, row: int, verdict: MetricVerdict) -> None:
    change = verdict.change_percent or 0.0
    colour, y = VERDICT_COLOURS[verdict.verdict], row + _BELOW_NAME
    low, high = _interval(verdict, change)
    sketch.band((-verdict.floor_percent, verdict.floor_percent), (row - 0.1, row + 0.42), _FLOOR_FILL)
    sketch.add(x=[low, high], y=[y, y], mode="lines", line={"color": colour, "width": 4}, hoverinfo="skip")
    sketch.add(
        x=[change],
        y=[y],
        mode="markers",
        marker={"color": colour, "size": 11},
        name=plain(verdict.metric),
        text=[f"{_told(verdict)}; interval {typeset(interval((low, high), None))}, {verdict.pairs} pairs"],
    )


def _ends(verdict: MetricVerdict) -> tuple[float, ...]:
    """All that a row draws: the change, its interval, the floor on both sides."""
    change = verdict.change_percent or 0.0
    return change, *_interval(verdict, change), -verdict.floor_percent, verdict.floor_percent


def _told(verdict: MetricVerdict) -> str:
    change = signed_percent(verdict.change_percent or 0.0)
    return f"{title(verdict.metric)}: {change}, {verdict.verdict.replace('_', ' ')}"


def _interval(verdict: MetricVerdict, change: float) -> tuple[float, float]:
    """The interval, or the point alone where there is none that can be drawn."""
    if verdict.interval_percent is None:
        return change, change
    return verdict.interval_percent
