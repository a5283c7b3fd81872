"""The look of figures: colours that can be told apart, text that cannot do harm, numbers."""

import pytest

from contract.rest import Point
from dashboard.figures import theme

PAGES = {"light": "#ffffff", "dark": "#1c2026"}


def _luminance(colour: str) -> float:
    """Relative luminance. Source: WCAG 2.2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colour", theme.PALETTE)
@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES.keys())
def test_every_colour_stands_out_on_a_light_and_on_a_dark_page(colour: str, page: str) -> None:
    assert _contrast(colour, page) >= 3.0


def test_arms_differ_in_colour_and_in_symbol() -> None:
    styles = list(theme.arm_styles([f"arm-{i}" for i in range(6)]).values())
    assert len({style.colour for style in styles}) == len({style.symbol for style in styles}) == 6
    assert len({style.mark for style in styles}) == 6


def test_a_virtual_device_is_marked_in_the_subject() -> None:
    assert "virtual" in str(theme.Subject("v-1", "iPhone14,5", virtual=True))
    assert "virtual" not in str(theme.Subject("p-1", "iPhone14,5", virtual=False))


def test_foreign_text_cannot_become_markup() -> None:
    assert theme.plain('<a href="x">') == '&lt;a href="x"&gt;'


def test_points_are_drawn_in_order_of_time() -> None:
    points = [Point(t_s=t_s, value=0.0) for t_s in (2.0, -1.0, 0.5)]
    assert [point.t_s for point in theme.in_order(points)] == [-1.0, 0.5, 2.0]
