"""Verdicts with their intervals and floors."""

import pytest

from contract.rest import MetricVerdict
from dashboard.figures.theme import GREEN, OCHRE, VERMILION
from dashboard.figures.verdicts import VERDICT_COLOURS, verdict_figure
from tests.fakes import dashboard_story as story


def test_a_verdict_shows_change_interval_and_floor() -> None:
    report = story.device_report(1, verdicts=[story.verdict(floor_percent=2.0)])
    figure = verdict_figure(report, "serial", "paged")
    interval, point = figure.data
    assert list(interval.x) == [-63.9, -60.8]
    assert list(point.x) == [-62.4]
    floor = next(shape for shape in figure.layout.shapes if shape.type == "rect")
    assert (floor.x0, floor.x1) == (-2.0, 2.0)
    assert figure.layout.annotations[0].text == "Wall time: −62.4\u00a0%, improved"
    assert figure.layout.xaxis.title.text == "change (% of baseline)"
    assert "Change from serial to paged" in figure.layout.title.text


def test_no_interval_and_no_floor_ends_at_the_frame() -> None:
    report = story.device_report(1, verdicts=[story.verdict(floor_percent=2.0)])
    low, high = verdict_figure(report, "serial", "paged").layout.xaxis.range
    assert low < -63.9
    assert high > 2.0


def test_a_change_without_an_interval_is_a_point() -> None:
    report = story.device_report(1, verdicts=[story.verdict(interval_percent=None)])
    assert list(verdict_figure(report, "serial", "paged").data[0].x) == [-62.4, -62.4]


@pytest.mark.parametrize(
    ("verdict", "colour"), [("improved", GREEN), ("regressed", VERMILION), ("inconclusive", OCHRE)]
)
def test_the_colour_follows_the_verdict_and_the_word_is_there_as_well(verdict: str, colour: str) -> None:
    report = story.device_report(1, verdicts=[story.verdict(verdict=verdict)])
    figure = verdict_figure(report, "serial", "paged")
    assert figure.data[1].marker.color == colour
    assert verdict in figure.layout.annotations[0].text


def test_every_verdict_of_the_contract_has_a_colour() -> None:
    kinds = MetricVerdict.model_fields["verdict"].annotation.__args__
    assert set(kinds) == set(VERDICT_COLOURS)


def test_without_a_change_the_figure_says_why() -> None:
    verdict = story.verdict(verdict="inconclusive", change_percent=None, reason="1 pair is not enough")
    figure = verdict_figure(story.device_report(1, verdicts=[verdict]), "serial", "paged")
    assert "1 pair is not enough" in figure.layout.annotations[0].text
    alone = verdict_figure(story.device_report(1, verdicts=[]), "serial", "paged")
    assert "the run has one arm" in alone.layout.annotations[0].text
