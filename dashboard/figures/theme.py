"""How every figure looks: colours, fonts, titles, the empty figure. The only place that knows them.

Colours follow Okabe and Ito (Color Universal Design, 2008), at a lightness that keeps a contrast of at least
3 to 1 on a light and on a dark page. Backgrounds are transparent; assets/dashboard.css gives text the page's
own ink.
"""

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from contract.rest import DeviceReportView, DeviceView, Point
from measures import wording
from measures.wording import typeset

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
LINE_PX: Final = 19
ROW_PX: Final = 56
HEIGHT_PX: Final = 300


@dataclass(frozen=True, slots=True)
class Subject:
    """Which device a figure is about: one, never a mixture."""

    device_id: str
    device_model: str
    virtual: bool

    def __str__(self) -> str:
        marked = " (virtual\u00a0device)" if self.virtual else ""
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


def in_order(points: Iterable[Point]) -> list[Point]:
    """The points in order of time; the contract has only finite ones."""
    return sorted(points, key=lambda point: point.t_s)


def number(value: float) -> str:
    """As everywhere, set for a page."""
    return typeset(wording.number(value))


def signed_percent(percent: float | None) -> str:
    """A change with its sign, set for a page."""
    return typeset(wording.change(percent))
