"""Figures of a live run."""

import pytest

from contract.rest import Series
from dashboard.figures.live import footprint_figure, kv_blocks_figure, output_rate_figure
from dashboard.figures.theme import Subject
from tests.fakes import dashboard_story as story

HOST = Subject("bench-host", "x86_64 (2 cores)", virtual=False)
FIGURES = {"rate": output_rate_figure, "footprint": footprint_figure, "blocks": kv_blocks_figure}


def _named(name: str, values: list[float], unit: str = "MB") -> Series:
    return Series(name=name, unit=unit, label=name, points=story.points(values))


@pytest.mark.parametrize("make", FIGURES.values(), ids=FIGURES.keys())
def test_axes_have_their_units_and_the_title_its_device(make: object) -> None:
    figure = make(story.live_view(), HOST)
    assert figure.layout.xaxis.title.text == "time since the attempt began (s)"
    assert figure.layout.yaxis.title.text.endswith(("(tokens/s)", "(MB)", "(blocks)"))
    assert "x86_64 (2 cores), bench-host" in figure.layout.title.text


@pytest.mark.parametrize("make", FIGURES.values(), ids=FIGURES.keys())
def test_without_data_a_figure_says_so(make: object) -> None:
    figure = make(story.nothing_live(), HOST)
    assert not figure.data
    assert "Nothing measured yet." in figure.layout.annotations[0].text
    assert not figure.layout.xaxis.visible


def test_the_output_rate_is_drawn_as_it_was_measured() -> None:
    live = story.live_view(series=[_named("output_tokens_per_s", [3.0, 0.0, 7.5], "tokens/s")])
    figure = output_rate_figure(live, HOST)
    (line,) = figure.data
    assert (list(line.x), list(line.y)) == ([0.0, 1.0, 2.0], [3.0, 0.0, 7.5])
    assert "7.50 tokens/s now" in figure.layout.title.text


def test_the_limit_is_a_line_above_the_footprint() -> None:
    live = story.live_view(
        series=[_named("footprint_mb", [400.0, 650.0, 600.0]), _named("limit_mb", [1024.0] * 3)]
    )
    figure = footprint_figure(live, HOST)
    assert [line.name for line in figure.data] == ["footprint", "limit"]
    assert figure.data[1].line.dash == "dash"
    assert "600 MB now, peak 650" in figure.layout.title.text
    assert "limit 1\u202f024 MB" in figure.layout.title.text


def test_a_limit_far_above_is_named_so_that_the_footprint_is_not_pressed_flat() -> None:
    live = story.live_view(series=[_named("footprint_mb", [400.0]), _named("limit_mb", [64_000.0])])
    figure = footprint_figure(live, HOST)
    assert [line.name for line in figure.data] == ["footprint"]
    assert "limit 64\u202f000 MB, above the view" in figure.layout.title.text


def test_a_missing_limit_is_said_to_be_missing() -> None:
    live = story.live_view(series=[_named("footprint_mb", [400.0])])
    assert "no limit reported" in footprint_figure(live, HOST).layout.title.text


def test_used_and_cached_blocks_differ_in_colour_and_in_dash() -> None:
    used, cached = kv_blocks_figure(story.live_view(), HOST).data
    assert (used.name, cached.name) == ("used", "cached")
    assert used.line.color != cached.line.color
    assert used.line.dash != cached.line.dash


def test_one_kind_of_block_alone_is_drawn_alone() -> None:
    live = story.live_view(series=[_named("kv_blocks_used", [4.0], "blocks")])
    (line,) = kv_blocks_figure(live, HOST).data
    assert line.name == "used"
    assert "markers" in line.mode, "a single point has no line"


def test_the_device_model_cannot_put_markup_into_the_title() -> None:
    figure = output_rate_figure(story.live_view(), Subject("d", "<b onclick=x>", virtual=False))
    assert "<b onclick" not in figure.layout.title.text
    assert "&lt;b onclick=x&gt;" in figure.layout.title.text


def test_all_figures_span_the_same_time() -> None:
    series = [
        _named("output_tokens_per_s", [1.0] * 3),
        _named("footprint_mb", [1.0] * 9),
        _named("kv_blocks_used", [1.0]),
    ]
    live = story.live_view(series=series)
    assert {tuple(make(live, HOST).layout.xaxis.range) for make in FIGURES.values()} == {(0, 8.0)}
