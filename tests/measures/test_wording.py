"""Numbers as text: the same digits everywhere, a unit beside them, a page's signs over them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.rest import ArmReport, Comparison, Spread
from measures import wording


@pytest.mark.parametrize(
    ("value", "told"),
    [
        *((0.0, "0"), (7.0, "7"), (0.01234, "0.0123"), (0.71, "0.710"), (12.345, "12.3"), (123.4, "123")),
        *((12345.6, "12346"), (-0.5, "-0.500"), (2.5e12, "2.5e+12"), (-2.5e-12, "-2.5e-12")),
        *((math.nan, "not finite"), (-math.inf, "not finite")),
    ],
)
def test_a_number_has_three_digits_that_count_and_a_whole_one_no_others(value: float, told: str) -> None:
    assert wording.number(value) == told


@given(st.floats(min_value=-1e300, max_value=1e300))
def test_a_shown_number_is_within_half_a_per_cent(value: float) -> None:
    assert float(wording.number(value)) == pytest.approx(value, rel=0.005)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("9120", "9\u202f120"),
        ("1234567.5", "1\u202f234\u202f567.5"),
        ("0.0001234", "0.0001234"),
        ("-62.4 %", "\u221262.4\u00a0%"),
        ("-2.5e-12", "\u22122.5e\u221212"),
        ("-1 to 3, n 4", "\u22121 to 3, n 4"),
        ("538 MB", "538\u00a0MB"),
        ("–", "–"),
    ],
)
def test_a_page_sets_signs_and_thousands_over_the_same_digits(text: str, told: str) -> None:
    assert wording.typeset(text) == told


@pytest.mark.parametrize(
    ("percent", "told"),
    [(3.14, "+3.1 %"), (-62.41, "-62.4 %"), (0.0, "+0.0 %"), (21354.0, "215 times"), (None, "–")],
)
def test_a_change_has_a_sign_and_beyond_a_thousand_per_cent_is_a_multiple(
    percent: float | None, told: str
) -> None:
    assert wording.change(percent) == told


def _spread(median: float, low: float | None = None, high: float | None = None, n: int = 5) -> Spread:
    return Spread(
        median=median, min=median if low is None else low, max=median if high is None else high, n=n
    )


@pytest.mark.parametrize(
    ("metric", "before", "after", "told"),
    [
        ("wall_s", 10.0, 8.0, "-20.0 %"),
        ("wall_s", 1.0, 22.0, "22 times"),
        ("preemptions", 0.0, 3.0, "+3"),
        ("kv_hit_rate_tokens", 0.0, 0.691, "+69.1 %"),
        ("preemptions", 0.0, 0.0, "–"),
    ],
)
def test_what_moved_from_nothing_is_told_in_its_unit(
    metric: str, before: float, after: float, told: str
) -> None:
    assert wording.moved(metric, _spread(before), _spread(after)) == told


def test_a_spread_has_its_unit_and_range_and_a_ratio_is_in_per_cent() -> None:
    assert wording.spread("wall_s", _spread(12.34, 11.02, 13.5)) == "12.3 s (11.0 to 13.5)"
    assert wording.spread("kv_hit_rate_tokens", _spread(0.691, n=1)) == "69.1 %"
    assert wording.spread("wall_s", None) == "–"
    assert wording.span("kv_hit_rate_tokens", _spread(0.5, 0.25, 0.751)) == "25 to 75.1, n 5"
    assert wording.span("wall_s", _spread(2.0)) == "the same in all 5"
    assert wording.span("wall_s", _spread(2.0, n=1)) == "one value"


def test_an_interval_says_how_much_it_covers_where_that_is_less_than_usual() -> None:
    assert wording.interval((-1.0, 2.0), 0.96) == "-1.0 % to +2.0 %"
    assert wording.interval((-1.0, 2.0), 0.5) == "-1.0 % to +2.0 % (covers 50 %)"
    assert wording.interval(None, None) == "–"


@pytest.mark.parametrize(
    ("percent", "told"),
    [(62.51, "62.5 % less time"), (-8.0, "8.0 % more time"), (0.0, "0.0 % less time"), (None, "–")],
)
def test_a_reduction_is_never_negative(percent: float | None, told: str) -> None:
    assert wording.reduction(percent) == told


def test_less_time_and_times_as_fast_are_never_taken_for_each_other() -> None:
    assert wording.less_time(60.0, 2.5) == "60.0 % less wall time, 2.50 times as fast"
    assert wording.less_time(-25.0, 0.8) == "25.0 % more wall time, 0.80 times as fast"
    assert wording.speedup(None) == "–"


def test_a_metric_is_named_with_its_unit_except_where_the_unit_says_nothing() -> None:
    assert wording.title_with_unit("wall_s") == "Wall time (s)"
    assert wording.title_with_unit("preemptions") == "Preemptions"
    assert wording.title_with_unit("kv_hit_rate_tokens") == "KV hit rate by token (%)"
    assert wording.title_with_unit("of_tomorrow") == "of_tomorrow"


def test_memory_is_in_units_of_ten_to_the_sixth() -> None:
    assert wording.megabytes(538_000_000) == "538 MB"


@pytest.mark.parametrize(
    ("beyond", "told"), [(True, "ranges apart"), (False, "ranges overlap"), (None, "too few trials")]
)
def test_of_two_runs_only_their_ranges_are_spoken_of(beyond: bool | None, told: str) -> None:
    metrics = {"wall_s": (_spread(2.0), _spread(3.0)), "failed_calls": (_spread(0.0), _spread(0.0))}
    found = Comparison.model_construct(metrics=metrics, beyond_noise=dict.fromkeys(metrics, beyond))
    assert wording.apart(found, "wall_s") == told
    assert wording.apart(found, "failed_calls") == ""


@pytest.mark.parametrize(("failed", "told"), [(0, "6 trials"), (2, "4 of 6 trials")])
def test_an_arm_says_once_how_many_of_its_planned_trials_it_has(failed: int, told: str) -> None:
    arm = ArmReport.model_construct(trials=6, trials_failed=failed)
    assert wording.trials(arm) == told


def test_a_long_id_is_shown_by_its_end_and_by_more_of_it_where_two_would_be_equal() -> None:
    ids = [
        "00008110-000A1111222233AB",
        "00008120-000B1111222233AB",
        "00008110-001C44445555CDEF",
        "bench-host",
    ]
    short = wording.short_ids(ids)
    assert short["bench-host"] == "bench-host"
    assert short[ids[2]] == "…55CDEF"
    assert len(set(short.values())) == len(ids)
    assert all(each.endswith(shown.removeprefix("…")) for each, shown in short.items())
