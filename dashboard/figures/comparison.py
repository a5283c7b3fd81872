"""Two runs side by side: the spread of every metric, as a share of the baseline run's median."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import plotly.graph_objects as go

from contract.rest import Comparison, Spread
from dashboard.figures.sketch import Sketch, empty_figure
from dashboard.figures.theme import GREY, ArmStyle, Subject, arm_styles
from measures import wording
from measures.wording import typeset

BASELINE_NAME: Final = "baseline run"
RUN_NAME: Final = "this run"
EDGE_PERCENT: Final = 300.0
"""Values beyond are drawn at the edge and say their true size when pointed at."""
_OFFSETS: Final = (0.08, 0.3)
"""Below the row's name: the baseline run, then this run."""
_TITLE: Final = "Both runs, metric by metric"


@dataclass(frozen=True, slots=True)
class _Share:
    """A spread in percent of the baseline run's median."""

    row: float
    median: float
    low: float
    high: float
    told: str


def spreads_figure(comparison: Comparison, subject: Subject) -> go.Figure:
    """Median and span of each metric in both runs; 100 % is the baseline run's median.

    Only for runs on one device model. A metric whose baseline median is 0 has no share: see the table.
    """
    drawn = {
        name: spreads for name, spreads in comparison.metrics.items() if _has_share(spreads[0], spreads[1])
    }
    if not drawn:
        return empty_figure(_TITLE, subject, "No metric was measured in both runs with a median above zero.")
    styles = arm_styles([BASELINE_NAME, RUN_NAME])
    sketch = Sketch(_TITLE, subject, [style.key for style in styles.values()])
    sketch.axes("share of the baseline's median (%)", "")
    sketch.x_axis(showgrid=True, zeroline=False, ticksuffix=" %", nticks=5)
    sketch.name_rows([wording.title(name) for name in drawn])
    sketch.upright(100.0, GREY)
    before, after = _shares(drawn, 0), _shares(drawn, 1)
    ends = [end for share in (*before, *after) for end in (share.low, share.median, share.high)]
    sketch.x_span([100.0, *(min(end, EDGE_PERCENT) for end in ends)])
    _draw(sketch, before, styles[BASELINE_NAME])
    _draw(sketch, after, styles[RUN_NAME])
    return sketch.figure()


def _has_share(before: Spread, after: Spread) -> bool:
    shares = [
        value / before.median if before.median > 0 else math.nan
        for spread in (before, after)
        for value in (spread.median, spread.min, spread.max)
    ]
    return all(math.isfinite(share * 100.0) and share >= 0 for share in shares)


def _shares(drawn: Mapping[str, tuple[Spread, Spread]], side: int) -> list[_Share]:
    shares = []
    for row, (name, spreads) in enumerate(drawn.items()):
        hundred, spread = spreads[0].median, spreads[side]
        told = typeset(f"{wording.median(name, spread)} {wording.unit(name)}, {wording.span(name, spread)}")
        low, median, high = (v / hundred * 100.0 for v in (spread.min, spread.median, spread.max))
        shares.append(_Share(row + _OFFSETS[side], median, low, high, f"{name}: {told}"))
    return shares


def _draw(sketch: Sketch, shares: list[_Share], style: ArmStyle) -> None:
    spans_x: list[float | None] = []
    spans_y: list[float | None] = []
    for share in shares:
        spans_x += [min(share.low, EDGE_PERCENT), min(share.high, EDGE_PERCENT), None]
        spans_y += [share.row, share.row, None]
    line = {"color": style.colour, "width": 3}
    sketch.add(x=spans_x, y=spans_y, mode="lines", line=line, hoverinfo="skip")
    symbols = [style.symbol if share.median <= EDGE_PERCENT else "triangle-right" for share in shares]
    sketch.add(
        x=[min(share.median, EDGE_PERCENT) for share in shares],
        y=[share.row for share in shares],
        mode="markers",
        name=style.arm,
        marker={"color": style.colour, "size": 10, "symbol": symbols},
        text=[share.told for share in shares],
    )
