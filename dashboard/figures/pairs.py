"""Wall time of the pairs: two trials that ran next to each other, joined."""

import math
from collections.abc import Sequence
from typing import Final

import plotly.graph_objects as go

from contract.rest import DeviceReportView, PairView
from dashboard.figures.theme import (
    GRID,
    ArmStyle,
    arm_styles,
    base_figure,
    empty_figure,
    label_axes,
    number,
    plain,
    subject_of,
)

_TITLE: Final = "Wall time, pair by pair"


def paired_wall_figure(report: DeviceReportView, arms: Sequence[str]) -> go.Figure:
    """Wall time in s of both arms of each pair, joined. `arms`: the baseline first.

    An arm that did not complete leaves its partner alone. A drift shows as a slope that both arms share.
    """
    present = [arm for arm in arms if any(_wall_s(pair, arm) is not None for pair in report.pairs)]
    if not present:
        return empty_figure(_TITLE, subject_of(report), "No pair has a completed trial: see the failures.")
    styles = arm_styles(arms)
    figure = base_figure(_TITLE, subject_of(report), [styles[arm].key for arm in present])
    label_axes(figure, "pair (in the order measured)", "wall time (s)")
    figure.add_trace(_joins(report.pairs, present))
    for arm in present:
        figure.add_trace(_arm(report.pairs, styles[arm]))
    numbers = [pair.pair for pair in report.pairs]
    # A whole number for each pair, but never so many that they run into each other.
    figure.update_xaxes(dtick=max(1, math.ceil(len(numbers) / 12)), tick0=1, zeroline=False)
    figure.update_xaxes(range=[min(numbers) - 0.5, max(numbers) + 0.5])
    figure.update_yaxes(rangemode="tozero")
    return figure


def _wall_s(pair: PairView, arm: str) -> float | None:
    """None for an arm without a time that can be drawn."""
    wall_s = pair.wall_s.get(arm)
    return wall_s if wall_s is not None and math.isfinite(wall_s) else None


def _joins(pairs: Sequence[PairView], arms: Sequence[str]) -> go.Scatter:
    xs: list[int | None] = []
    ys: list[float | None] = []
    for pair in pairs:
        walls = [wall for arm in arms if (wall := _wall_s(pair, arm)) is not None]
        if len(walls) > 1:
            xs += [pair.pair, pair.pair, None]
            ys += [min(walls), max(walls), None]
    return go.Scatter(x=xs, y=ys, mode="lines", line={"color": GRID, "width": 6}, hoverinfo="skip")


def _arm(pairs: Sequence[PairView], style: ArmStyle) -> go.Scatter:
    measured = [(pair.pair, wall) for pair in pairs if (wall := _wall_s(pair, style.arm)) is not None]
    return go.Scatter(
        x=[pair for pair, _ in measured],
        y=[wall for _, wall in measured],
        mode="markers",
        name=plain(style.arm),
        marker={"color": style.colour, "symbol": style.symbol, "size": 10},
        text=[f"pair {pair}, {plain(style.arm)}: {number(wall)} s" for pair, wall in measured],
        hovertemplate="%{text}<extra></extra>",
    )
