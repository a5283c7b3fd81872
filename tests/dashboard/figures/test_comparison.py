"""Two runs side by side."""

from contract.rest import Spread
from dashboard.figures.comparison import EDGE_PERCENT, spreads_figure
from dashboard.figures.theme import Subject
from tests.fakes import dashboard_story as story

HOST = Subject("bench-host", "x86_64 (2 cores)", virtual=False)


def _figure(**metrics: tuple[Spread, Spread]) -> object:
    return spreads_figure(story.comparison(metrics=metrics, change_percent={}), HOST)


def _spread(median: float, low: float, high: float) -> Spread:
    return Spread(median=median, min=low, max=high, n=5)


def test_spreads_are_shares_of_the_baseline_run_s_median() -> None:
    figure = _figure(wall_s=(_spread(10, 8, 12), _spread(5, 4, 6)))
    spans_before, before, spans_after, after = figure.data
    assert list(spans_before.x) == [80.0, 120.0, None]
    assert list(before.x) == [100.0]
    assert list(spans_after.x) == [40.0, 60.0, None]
    assert list(after.x) == [50.0]
    assert after.text[0] == "wall_s: 5 s, 4 to 6, n 5"
    assert figure.layout.xaxis.title.text == "share of the baseline's median (%)"


def test_a_value_far_away_stands_at_the_edge_and_says_its_size() -> None:
    after = _figure(ttft_ms=(_spread(1, 1, 1), _spread(50, 40, 60))).data[3]
    assert list(after.x) == [EDGE_PERCENT]
    assert after.marker.symbol[0] == "triangle-right"
    assert "50 ms" in after.text[0]


def test_a_metric_with_a_baseline_of_zero_has_no_share() -> None:
    figure = _figure(preemptions=(_spread(0, 0, 0), _spread(2, 1, 3)))
    assert not figure.data
    assert "above zero" in figure.layout.annotations[0].text


def test_rows_are_named_by_the_catalogue_s_titles() -> None:
    figure = _figure(wall_s=(_spread(1, 1, 1), _spread(1, 1, 1)), new=(_spread(1, 1, 1), _spread(1, 1, 1)))
    assert [note.text for note in figure.layout.annotations] == ["Wall time", "new"]
