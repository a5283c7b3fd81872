"""What the runtime does while the run is live: output rate, footprint under its limit, KV blocks."""

from collections.abc import Sequence
from typing import Any, Final

import plotly.graph_objects as go

from contract.rest import LiveView, Point
from dashboard.figures.sketch import Sketch, empty_figure
from dashboard.figures.theme import BLUE, BLUE_FILL, GREEN, VERMILION, Key, Subject, in_order, number

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
    sketch = Sketch(title, subject, [Key(BLUE, _SOLID, f"{number(points[-1].value)} tokens/s now")])
    _time_axes(sketch, live, "output rate (tokens/s)")
    sketch.add(**_line(points, BLUE, "output rate", "tokens/s"), fill="tozeroy", fillcolor=BLUE_FILL)
    return sketch.figure()


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
    sketch = Sketch(title, subject, keys)
    _time_axes(sketch, live, "footprint (MB)")
    sketch.add(**_line(points, BLUE, "footprint", "MB"))
    if has_line:
        sketch.add(**_line(limits, VERMILION, "limit", "MB", dash="dash"))
    return sketch.figure()


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
    keys = [Key(colour, mark, f"{name} {number(shown[-1].value)}") for shown, colour, name, mark, _ in drawn]
    sketch = Sketch(title, subject, keys)
    _time_axes(sketch, live, "KV blocks (blocks)")
    for shown, colour, name, _, dash in drawn:
        sketch.add(**_line(shown, colour, name, "blocks", dash=dash))
    return sketch.figure()


def _time_axes(sketch: Sketch, live: LiveView, y_title: str) -> None:
    """The same span of time in every figure, so that one can be held against the other."""
    last_s = max((point.t_s for line in live.series for point in line.points), default=0.0)
    sketch.axes(TIME_AXIS, y_title)
    sketch.x_axis(range=[0, max(last_s, 1.0)])
    sketch.y_axis(rangemode="tozero")


def _points(live: LiveView, name: str) -> list[Point]:
    """Points of the series of that name; none when it is missing."""
    return in_order(next((line.points for line in live.series if line.name == name), []))


def _line(points: Sequence[Point], colour: str, name: str, unit: str, dash: str = "solid") -> dict[str, Any]:
    """A line of steps: a value holds until the next one, and nothing is known between two samples."""
    return {
        "x": [point.t_s for point in points],
        "y": [point.value for point in points],
        "name": name,
        "mode": "lines+markers" if len(points) == 1 else "lines",
        "line": {"color": colour, "width": 2, "dash": dash, "shape": "hv"},
        # One template and not a text for each point: this is sent every second.
        "hovertemplate": f"{name} %{{y:.4g}} {unit} at %{{x:.1f}} s<extra></extra>",
    }
