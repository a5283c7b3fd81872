"""Wall time of the pairs: two trials that ran next to each other, joined."""

import math
from collections.abc import Sequence
from typing import Final

import plotly.graph_objects as go

from contract.rest import DeviceReportView, PairView
from dashboard.figures.sketch import Sketch, empty_figure
from dashboard.figures.theme import GRID, ArmStyle, arm_styles, number, plain, subject_of

_TITLE: Final = "Wall time, pair by pair"


def paired_wall_figure(report: DeviceReportView, arms: Sequence[str]) -> go.Figure:
    """Wall time in s of both arms of each pair, joined. `arms`: the baseline first.

    An arm that did not complete leaves its partner alone. A drift shows as a slope that both arms share.
    """
    present = [arm for arm in arms if any(pair.wall_s.get(arm) is not None for pair in report.pairs)]
    if not present:
        return empty_figure(_TITLE, subject_of(report), "No pair has a completed trial: see the failures.")
    styles = arm_styles(arms)
    sketch = Sketch(_TITLE, subject_of(report), [styles[arm].key for arm in present])
    sketch.axes("pair (in the order measured)", "wall time (s)")
    numbers = [pair.pair for pair in report.pairs]
    # A whole number for each pair, but never so many that they run into each other.
    sketch.x_axis(dtick=max(1, math.ceil(len(numbers) / 12)), tick0=1, zeroline=False)
    sketch.x_axis(range=[min(numbers) - 0.5, max(numbers) + 0.5])
    sketch.y_axis(rangemode="tozero")
    _join_arms(sketch, report.pairs, present)
    for arm in present:
        _draw_arm(sketch, report.pairs, styles[arm])
    return sketch.figure()


def _join_arms(sketch: Sketch, pairs: Sequence[PairView], arms: Sequence[str]) -> None:
    xs: list[int | None] = []
    ys: list[float | None] = []
    for pair in pairs:
        walls = [wall for arm in arms if (wall := pair.wall_s.get(arm)) is not None]
        if len(walls) > 1:
            xs += [pair.pair, pair.pair, None]
            ys += [min(walls), max(walls), None]
    sketch.add(x=xs, y=ys, mode="lines", line={"color": GRID, "width": 6}, hoverinfo="skip")


def _draw_arm(sketch: Sketch, pairs: Sequence[PairView], style: ArmStyle) -> None:
    measured = [(pair.pair, wall) for pair in pairs if (wall := pair.wall_s.get(style.arm)) is not None]
    sketch.add(
        x=[pair for pair, _ in measured],
        y=[wall for _, wall in measured],
        mode="markers",
        name=plain(style.arm),
        marker={"color": style.colour, "symbol": style.symbol, "size": 10},
        text=[f"pair {pair}, {style.arm}: {number(wall)} s" for pair, wall in measured],
    )
