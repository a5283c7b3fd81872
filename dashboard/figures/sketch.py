"""A figure in the making: plain dictionaries, given to plotly once.

Plotly checks and copies the whole figure at each change: drawn step by step, four small figures took a fifth
of a second of processor time, on a machine that may just be measuring. Built once, they take a fiftieth.
"""

import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import plotly.graph_objects as go

from dashboard.figures.theme import (
    FONT,
    FONT_SIZE_PX,
    GRID,
    HEIGHT_PX,
    INK,
    LINE_PX,
    ROW_PX,
    TITLE_SIZE_PX,
    TITLE_WIDTH_CHARACTERS,
    Key,
    Subject,
    plain,
)

_MARGIN_SHARE = 0.06


class Sketch:
    """Traces, axes and notes of one figure about one device. Titles, row names and texts may be foreign."""

    def __init__(self, title: str, subject: Subject, keys: Iterable[Key] = ()) -> None:
        """The key stands under the title: at the ends of lines, names would lie on other lines."""
        small = [*_wrapped(str(subject)), *_key_lines(list(keys))]
        lines = [f"<b>{line}</b>" for line in _wrapped(title)]
        lines += [f'<span style="font-size:{FONT_SIZE_PX}px">{line}</span>' for line in small]
        self._traces: list[dict[str, Any]] = []
        self._notes: list[dict[str, Any]] = []
        self._shapes: list[dict[str, Any]] = []
        self._x: dict[str, Any] = {}
        self._y: dict[str, Any] = {}
        self._margin = {"l": 62, "r": 18, "t": 24 + LINE_PX * len(lines), "b": 48}
        self._title = "<br>".join(lines)
        self._height_px = HEIGHT_PX

    def axes(self, x_title: str, y_title: str) -> None:
        """Titles with their units, a light grid and no box."""
        axis = {
            **{"gridcolor": GRID, "zerolinecolor": GRID, "linecolor": GRID, "ticks": "", "fixedrange": True},
            # 12 000 and not 12k: the prefix would stand beside a unit that has one of its own.
            **{"separatethousands": True, "minexponent": 7, "tickangle": 0},
        }
        self._x |= {**axis, "title": _axis_title(x_title, 8), "showgrid": False}
        self._y |= {**axis, "title": _axis_title(y_title, 6)}

    def x_axis(self, **settings: Any) -> None:
        """Further settings, as plotly names them."""
        self._x |= settings

    def x_span(self, values: Iterable[float]) -> None:
        """Show all of these with a margin beside them: plotly lets a line end at the very frame."""
        drawn = list(values)
        low, high = min(drawn), max(drawn)
        # Two products: the difference of two huge numbers is infinite.
        margin = (_MARGIN_SHARE * high - _MARGIN_SHARE * low) or _MARGIN_SHARE * abs(high) or 1.0
        largest = sys.float_info.max
        self._x |= {"range": [max(low - margin, -largest), min(high + margin, largest)]}

    def y_axis(self, **settings: Any) -> None:
        """Further settings, as plotly names them."""
        self._y |= settings

    def add(self, **scatter: Any) -> None:
        """A scatter trace; its `text` is what is shown when a point is pointed at."""
        if "text" in scatter:
            scatter |= {
                "text": [plain(text) for text in scatter["text"]],
                "hovertemplate": "%{text}<extra></extra>",
            }
        self._traces.append({"type": "scatter", **scatter})

    def band(self, x: tuple[float, float], y: tuple[float, float], colour: str) -> None:
        """A filled rectangle behind the data."""
        corners = {"x0": x[0], "x1": x[1], "y0": y[0], "y1": y[1]}
        self._shapes.append(
            {"type": "rect", **corners, "fillcolor": colour, "line": {"width": 0}, "layer": "below"}
        )

    def upright(self, x: float, colour: str) -> None:
        """A thin line through the whole height."""
        ends = {"x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper"}
        self._shapes.append({"type": "line", **ends, "line": {"color": colour, "width": 1}})

    def grow(self, height_px: int) -> None:
        """At least this high."""
        self._height_px = max(self._height_px, height_px)

    def name_rows(self, names: Sequence[str]) -> None:
        """Rows from the top, each with its name above it; the figure is as high as they need.

        Inside the frame, since names beside it would leave a small screen no room for the data. Row i spans
        y = i ± 0.5, and its name takes the upper part.
        """
        for row, name in enumerate(names):
            place = {"x": 0, "xref": "paper", "xanchor": "left", "y": row - 0.46, "yanchor": "top"}
            self._notes.append({**place, "text": plain(name), "showarrow": False, "font": {"color": INK}})
        hidden = {"showticklabels": False, "showgrid": False, "zeroline": False}
        self._y |= {**hidden, "range": [len(names) - 0.5, -0.5]}
        self._margin["l"] = 12
        self._height_px = self._margin["t"] + self._margin["b"] + ROW_PX * len(names)

    def say(self, message: str) -> None:
        """A message in the middle of a figure that has no axes."""
        middle = {"x": 0.5, "y": 0.5, "xref": "paper", "yref": "paper", "showarrow": False}
        self._notes.append({**middle, "text": "<br>".join(_wrapped(message)), "font": {"color": INK}})
        self._x, self._y = {"visible": False}, {"visible": False}

    def figure(self) -> go.Figure:
        """The finished figure, with a transparent background."""
        layout = {
            "template": "none",
            "title": _title(self._title),
            "font": {"family": FONT, "size": FONT_SIZE_PX, "color": INK},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "margin": self._margin,
            "height": self._height_px,
            "autosize": True,
            "showlegend": False,
            "hovermode": "closest",
            "dragmode": False,
            "separators": ".\u202f",
            "xaxis": self._x,
            "yaxis": self._y,
            "annotations": self._notes,
            "shapes": self._shapes,
        }
        return go.Figure(data=self._traces, layout=layout)


def empty_figure(title: str, subject: Subject, message: str) -> go.Figure:
    """A figure without data that says so, and why."""
    sketch = Sketch(title, subject)
    sketch.say(message)
    return sketch.figure()


def _title(text: str) -> dict[str, Any]:
    return {
        "text": text,
        "font": {"size": TITLE_SIZE_PX, "color": INK},
        **{"x": 0.0, "xref": "container", "xanchor": "left"},
        **{"y": 1.0, "yref": "container", "yanchor": "top"},
        # Plotly measures from the first line's base, so its own height is left free above it.
        "pad": {"t": 18, "l": 6},
    }


def _axis_title(text: str, standoff_px: int) -> dict[str, Any]:
    return {"text": text, "font": {"size": FONT_SIZE_PX}, "standoff": standoff_px}


def _key_lines(keys: Sequence[Key]) -> list[str]:
    """Entries side by side, as many to a line as its width takes."""
    lines: list[list[Key]] = []
    for key in keys:
        if lines and sum(len(k.text) + 4 for k in lines[-1]) + len(key.text) <= TITLE_WIDTH_CHARACTERS:
            lines[-1].append(key)
        else:
            lines.append([key])
    return ["   ".join(map(_entry, line)) for line in lines]


def _entry(key: Key) -> str:
    return f'<span style="color:{key.colour}">{key.mark}</span> {plain(key.text)}'


def _wrapped(text: str) -> list[str]:
    return [plain(line) for line in textwrap.wrap(text, TITLE_WIDTH_CHARACTERS)] or [""]
