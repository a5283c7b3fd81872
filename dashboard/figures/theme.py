"""How every figure looks: colours, fonts, titles, the empty figure. The only place that knows them.

Colours follow Okabe and Ito (Color Universal Design, 2008), at a lightness that keeps a contrast of at least
3 to 1 on a light and on a dark page. Backgrounds are transparent; assets/dashboard.css gives text the page's
own ink.
"""

import html
import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import plotly.graph_objects as go

from contract.rest import DeviceReportView, DeviceView, Point

BLUE: Final = "#2f7fd1"
BLUE_FILL: Final = "rgba(47, 127, 209, 0.18)"
VERMILION: Final = "#d55e00"
GREEN: Final = "#00896a"
PURPLE: Final = "#b0609b"
OCHRE: Final = "#a27800"
GREY: Final = "#7b828c"
PALETTE: Final = (GREY, BLUE, VERMILION, GREEN, PURPLE, OCHRE)
"""The first is the baseline's, the second the candidate's."""
SYMBOLS: Final = ("circle", "square", "diamond", "triangle-up", "x", "star")
_MARKS: Final = ("●", "■", "◆", "▲", "✕", "★")

INK: Final = "#4a5059"
GRID: Final = "rgba(123, 130, 140, 0.28)"
FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
FONT_SIZE_PX: Final = 13
TITLE_SIZE_PX: Final = 15
TITLE_WIDTH_CHARACTERS: Final = 46
"""Fits a figure of 340 pixels, the width of a small screen."""
_LINE_PX: Final = 19
MINUS: Final = "\u2212"
BIG: Final = 1e9
"""From here on a number is written with an exponent."""
ROW_PX: Final = 56
HEIGHT_PX: Final = 300


@dataclass(frozen=True, slots=True)
class Subject:
    """Which device a figure is about: one, never a mixture (C6)."""

    device_id: str
    device_model: str
    virtual: bool

    def __str__(self) -> str:
        marked = " (virtual device)" if self.virtual else ""
        return f"{self.device_model}, {self.device_id}{marked}"


def subject_of(device: DeviceView | DeviceReportView) -> Subject:
    """The subject of figures about this device."""
    return Subject(device.device_id, device.device_model, device.virtual)


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of the line that says what is what, under the title: a coloured mark and its meaning."""

    colour: str
    mark: str
    text: str


@dataclass(frozen=True, slots=True)
class ArmStyle:
    """How one arm is drawn: by colour and by symbol, so that neither has to be told apart alone."""

    arm: str
    colour: str
    symbol: str
    mark: str

    @property
    def key(self) -> Key:
        """The arm's entry."""
        return Key(self.colour, self.mark, self.arm)


def arm_styles(arms: Sequence[str]) -> dict[str, ArmStyle]:
    """A style for each arm, by its place: the baseline comes first. Beyond six, styles come again."""
    return {
        arm: ArmStyle(arm, PALETTE[i % len(PALETTE)], SYMBOLS[i % len(SYMBOLS)], _MARKS[i % len(_MARKS)])
        for i, arm in enumerate(arms)
    }


def plain(text: str) -> str:
    """Foreign text for a figure: plotly reads tags in it, so they are made harmless."""
    return html.escape(text, quote=False)


def base_figure(title: str, subject: Subject, keys: Iterable[Key] = ()) -> go.Figure:
    """An empty frame with its title, the device, and what is what.

    The key stands under the title, and not at the ends of lines, where names would lie on other lines.
    """
    lines = [f"<b>{line}</b>" for line in _wrapped(title)]
    lines += [f'<span style="font-size:{FONT_SIZE_PX}px">{line}</span>' for line in _wrapped(str(subject))]
    lines += [f'<span style="font-size:{FONT_SIZE_PX}px">{line}</span>' for line in _key_lines(list(keys))]
    figure = go.Figure()
    figure.update_layout(
        template="none",
        title={
            "text": "<br>".join(lines),
            "font": {"size": TITLE_SIZE_PX, "color": INK},
            "x": 0.0,
            "xref": "container",
            "xanchor": "left",
            "y": 1.0,
            "yref": "container",
            "yanchor": "top",
            # Plotly measures from the first line's base, so its own height is left free above it.
            "pad": {"t": 18, "l": 6},
        },
        font={"family": FONT, "size": FONT_SIZE_PX, "color": INK},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        margin={"l": 62, "r": 18, "t": 24 + _LINE_PX * len(lines), "b": 48},
        height=HEIGHT_PX,
        showlegend=False,
        hovermode="closest",
        dragmode=False,
        autosize=True,
        separators=".\u202f",
        # The same for every tick: a zoom of the reader stays when new points come.
        uirevision="kept",
    )
    return figure


def _key_lines(keys: Sequence[Key]) -> list[str]:
    """Entries side by side, as many to a line as its width takes."""
    lines: list[list[Key]] = []
    for key in keys:
        if lines and sum(len(k.text) + 4 for k in lines[-1]) + len(key.text) <= TITLE_WIDTH_CHARACTERS:
            lines[-1].append(key)
        else:
            lines.append([key])
    return [
        "   ".join(f'<span style="color:{k.colour}">{k.mark}</span> {plain(k.text)}' for k in line)
        for line in lines
    ]


def _wrapped(text: str) -> list[str]:
    return [plain(line) for line in textwrap.wrap(text, TITLE_WIDTH_CHARACTERS)] or [""]


def label_axes(figure: go.Figure, x_title: str, y_title: str) -> go.Figure:
    """Titles with their units, a light grid and no box; the y axis of a quantity begins at zero."""
    axis = {
        **{"gridcolor": GRID, "zerolinecolor": GRID, "linecolor": GRID, "ticks": "", "fixedrange": True},
        # 12 000 and not 12k: the prefix would stand beside a unit that has one of its own.
        **{"separatethousands": True, "minexponent": 7, "tickangle": 0},
    }
    title_font = {"size": FONT_SIZE_PX}
    figure.update_xaxes(**axis, title={"text": x_title, "font": title_font, "standoff": 8}, showgrid=False)
    figure.update_yaxes(**axis, title={"text": y_title, "font": title_font, "standoff": 6}, automargin=True)
    return figure


def name_rows(figure: go.Figure, names: Sequence[tuple[str, str]]) -> None:
    """Rows from the top, each with its name and colour above it; the figure grows with them.

    Inside the frame, since names beside it would leave a small screen no room for the data. Row i spans
    y = i ± 0.5, and its name takes the upper part.
    """
    for row, (name, colour) in enumerate(names):
        figure.add_annotation(
            x=0,
            xref="paper",
            xanchor="left",
            y=row - 0.46,
            yanchor="top",
            text=plain(name),
            showarrow=False,
            font={"color": colour},
        )
    figure.update_yaxes(
        range=[len(names) - 0.5, -0.5], showticklabels=False, showgrid=False, zeroline=False, automargin=False
    )
    figure.update_layout(
        margin={"l": 12}, height=figure.layout.margin.t + figure.layout.margin.b + ROW_PX * len(names)
    )


def empty_figure(title: str, subject: Subject, message: str) -> go.Figure:
    """A figure without data that says so, and why."""
    figure = base_figure(title, subject)
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    figure.add_annotation(
        text="<br>".join(_wrapped(message)),
        x=0.5,
        y=0.5,
        xref="paper",
        yref="paper",
        showarrow=False,
        font={"size": FONT_SIZE_PX, "color": INK},
    )
    return figure


def finite(points: Iterable[Point]) -> list[Point]:
    """The points that can be drawn, in order of time."""
    drawable = (point for point in points if math.isfinite(point.t_s) and math.isfinite(point.value))
    return sorted(drawable, key=lambda point: point.t_s)


def number(value: float) -> str:
    """A value as a person reads it: three significant digits, thousands apart by a thin space."""
    if not math.isfinite(value):
        return "not finite"
    if abs(value) >= BIG:
        return f"{value:.3g}"
    shown = f"{value:,.0f}".replace(",", "\u202f") if abs(value) >= 100 else f"{value:.3g}"
    return shown.replace("-", MINUS)


def signed_percent(percent: float) -> str:
    """A change with its sign."""
    shown = f"{percent:+.1f}" if abs(percent) < BIG else f"{percent:+.3g}"
    return f"{shown.replace('-', MINUS)}\u00a0%"
