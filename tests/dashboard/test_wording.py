"""Numbers and states as text."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from contract.rest import Spread
from dashboard import wording


def test_a_time_is_shown_in_utc_whatever_its_zone() -> None:
    moment = datetime(2026, 1, 2, 1, 30, tzinfo=timezone(timedelta(hours=2)))
    assert wording.timestamp(moment) == "2026-01-01 23:30 UTC"
    assert wording.timestamp(None) == "–"
    assert wording.timestamp(datetime(2026, 1, 1, tzinfo=UTC)).endswith("UTC")


@pytest.mark.parametrize(
    ("percent", "told"),
    [(62.51, "62.5 % less time"), (-8.0, "8.0 % more time"), (0.0, "0.0 % less time"), (None, "–")],
)
def test_a_reduction_is_never_negative(percent: float | None, told: str) -> None:
    assert wording.reduction(percent) == told


def test_a_speed_up_is_another_figure_than_a_reduction() -> None:
    assert wording.speedup(2.668) == "2.67 times as fast"
    assert wording.speedup(None) == "–"


@pytest.mark.parametrize(
    ("spread", "told"),
    [
        (Spread(median=2, min=1, max=3, n=4), "1–3, n 4"),
        (Spread(median=2, min=-1, max=3, n=4), "−1 to 3, n 4"),
        (Spread(median=2, min=2, max=2, n=4), "the same in all 4"),
        (Spread(median=2, min=2, max=2, n=1), "one value"),
    ],
)
def test_a_span_says_from_where_to_where_and_over_how_many(spread: Spread, told: str) -> None:
    assert wording.spread_span(spread).replace("\u00a0", " ") == told


@pytest.mark.parametrize(
    ("metric", "percent", "better"),
    [
        ("wall_s", -5.0, True),
        ("wall_s", 5.0, False),
        ("output_tokens_per_s", 5.0, True),
        ("prompt_tokens_submitted", 5.0, None),
        ("wall_s", 0.0, None),
        ("unknown", 5.0, None),
    ],
)
def test_better_follows_the_catalogue(metric: str, percent: float, better: bool | None) -> None:
    assert wording.is_better(metric, percent) is better


def test_a_metric_is_named_with_its_unit_except_where_the_unit_says_nothing() -> None:
    assert wording.metric_title("wall_s") == "Wall time (s)"
    assert wording.metric_title("preemptions") == "Preemptions"
    assert wording.metric_title("kv_hit_rate_tokens") == "KV hit rate by token"
    assert wording.metric_title("of_tomorrow") == "of_tomorrow"
    assert wording.metric_definition("of_tomorrow") == ""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("it broke", "It broke."),
        ("wall_s rose", "wall_s rose."),
        ("host-1 is away", "host-1 is away."),
        ("Why?", "Why?"),
        ("", ""),
        (" done. ", "Done."),
    ],
)
def test_a_sentence_begins_and_ends_as_one(text: str, told: str) -> None:
    assert wording.sentence(text) == told


def test_memory_is_in_units_of_ten_to_the_sixth() -> None:
    assert wording.megabytes(538_000_000) == "538\u00a0MB"
