"""What the runtime does while the run is live: output rate, footprint under its limit, KV blocks."""

from collections.abc import Sequence
from typing import Final

import plotly.graph_objects as go

from contract.rest import LiveView, Point, Series
from dashboard.figures.theme import (
    BLUE,
    BLUE_FILL,
    GREEN,
    VERMILION,
    Key,
    Subject,
    base_figure,
    empty_figure,
    finite,
    label_axes,
    number,
)

TIME_AXIS: Final = "time since the attempt began (s)"
FAR_LIMIT: Final = 3.0
"""A limit beyond this many times the peak would press the footprint flat: it is named, not drawn."""
_SOLID: Final = "━"
_DASHED: Final = "╍"
_WAITING: Final = "Nothing measured yet. The first values come with the first trial."


def output_rate_figure(live: LiveView, subject: Subject) -> go.Figure:
    """Output tokens of all agents per second; a pause is a zero."""
    title = "Output rate"
    points = _points(live, "output_tokens_per_s")
    if not points:
        return empty_figure(title, subject, _WAITING)
    key = Key(BLUE, _SOLID, f"{number(points[-1].value)} tokens/s now")
    figure = label_axes(base_figure(title, subject, [key]), TIME_AXIS, "output rate (tokens/s)")
    figure.add_trace(_line(points, BLUE, "output rate", "tokens/s", fill="tozeroy"))
    figure.update_traces(line_shape="hv", fillcolor=BLUE_FILL)
    figure.update_yaxes(rangemode="tozero")
    return figure


def footprint_figure(live: LiveView, subject: Subject) -> go.Figure:
    """Footprint in MB (10^6 bytes) with the line at which the system would kill the process."""
    title = "Memory footprint"
    points, limits = _points(live, "footprint_mb"), _points(live, "limit_mb")
    if not points:
        return empty_figure(title, subject, _WAITING)
    peak = max(point.value for point in points)
    has_line = bool(limits) and limits[-1].value <= FAR_LIMIT * max(peak, 1.0)
    keys = [
        Key(BLUE, _SOLID, f"{number(points[-1].value)} MB now, peak {number(peak)}"),
        Key(VERMILION, _DASHED, _limit_told(limits, is_drawn=has_line)),
    ]
    figure = label_axes(base_figure(title, subject, keys), TIME_AXIS, "footprint (MB)")
    figure.add_trace(_line(points, BLUE, "footprint", "MB"))
    if has_line:
        figure.add_trace(_line(limits, VERMILION, "limit", "MB", dash="dash"))
    figure.update_yaxes(rangemode="tozero")
    return figure


def _limit_told(limits: Sequence[Point], *, is_drawn: bool) -> str:
    if not limits:
        return "no limit reported"
    told = f"limit {number(limits[-1].value)} MB"
    return told if is_drawn else f"{told}, above the view"


def kv_blocks_figure(live: LiveView, subject: Subject) -> go.Figure:
    """Blocks of the KV pool that sequences hold, and blocks kept for the next prompt that begins alike."""
    title = "KV blocks"
    used, cached = _points(live, "kv_blocks_used"), _points(live, "kv_blocks_cached")
    if not used and not cached:
        return empty_figure(title, subject, _WAITING)
    lines = [(used, GREEN, "used", _SOLID, "solid"), (cached, VERMILION, "cached", _DASHED, "dash")]
    drawn = [line for line in lines if line[0]]
    keys = [
        Key(colour, mark, f"{name} {number(points[-1].value)}") for points, colour, name, mark, _ in drawn
    ]
    figure = label_axes(base_figure(title, subject, keys), TIME_AXIS, "KV blocks (blocks)")
    for points, colour, name, _, dash in drawn:
        figure.add_trace(_line(points, colour, name, "blocks", dash=dash))
    figure.update_yaxes(rangemode="tozero")
    return figure


def _points(live: LiveView, name: str) -> list[Point]:
    """Drawable points of the series of that name; none when it is missing."""
    return finite(_series(live.series, name))


def _series(series: Sequence[Series], name: str) -> list[Point]:
    return next((line.points for line in series if line.name == name), [])


def _line(points: Sequence[Point], colour: str, name: str, unit: str, **style: str) -> go.Scatter:
    return go.Scatter(
        x=[point.t_s for point in points],
        y=[point.value for point in points],
        name=name,
        mode="lines+markers" if len(points) == 1 else "lines",
        line={"color": colour, "width": 2, "dash": style.get("dash", "solid")},
        fill=style.get("fill", "none"),
        hovertemplate=f"{name} %{{y:.4g}} {unit} at %{{x:.1f}} s<extra></extra>",
    )
