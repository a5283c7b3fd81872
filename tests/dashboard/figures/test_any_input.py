"""Whatever the numbers and texts are: a figure comes out, without a value that JSON does not know."""

import json
import math
from typing import Any

import plotly.graph_objects as go
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.rest import MetricVerdict, PairView, Point, Series, Spread
from dashboard.figures.comparison import spreads_figure
from dashboard.figures.live import footprint_figure, kv_blocks_figure, output_rate_figure
from dashboard.figures.pairs import paired_wall_figure
from dashboard.figures.theme import Subject
from dashboard.figures.ttft import live_ttft_figure, ttft_spread_figure
from dashboard.figures.verdicts import verdict_figure
from tests.fakes import dashboard_story as story

NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [0.0, -0.0, 1e308, -1e308, 5e-324]
)
TEXTS = st.text(max_size=120)
NAMES = st.from_regex(r"[a-z0-9][a-z0-9_.-]{0,20}", fullmatch=True)
SUBJECTS = st.builds(Subject, device_id=TEXTS, device_model=TEXTS, virtual=st.booleans())
POINTS = st.lists(st.builds(Point, t_s=NUMBERS, value=NUMBERS), max_size=30)
SPREADS = st.builds(Spread, median=NUMBERS, min=NUMBERS, max=NUMBERS, n=st.integers(1, 9))
SERIES_NAMES = ("output_tokens_per_s", "footprint_mb", "limit_mb", "kv_blocks_used", "kv_blocks_cached")


def _refuse(constant: str) -> float:
    raise AssertionError(f"{constant} in a figure")


def _check(figure: go.Figure, subject: Subject) -> None:
    """Drawable, titled, and marked when the device is virtual; plotly itself writes NaN as null."""
    for trace in figure.data:
        for value in (*(trace.x or ()), *(trace.y or ())):
            assert value is None or math.isfinite(value)
    sent: dict[str, Any] = json.loads(figure.to_json(), parse_constant=_refuse)
    title = sent["layout"]["title"]["text"]
    assert "(virtual\u00a0device)" in title or not subject.virtual
    assert figure.layout.height > 0


@given(series=st.lists(POINTS, min_size=5, max_size=5), subject=SUBJECTS)
@settings(max_examples=40)
def test_live_lines(series: list[list[Point]], subject: Subject) -> None:
    named = [
        Series(name=name, unit="", label="", points=points)
        for name, points in zip(SERIES_NAMES, series, strict=True)
    ]
    live = story.live_view(series=named)
    for make in (output_rate_figure, footprint_figure, kv_blocks_figure):
        _check(make(live, subject), subject)


@given(
    waits=st.dictionaries(NAMES, st.dictionaries(TEXTS, NUMBERS, max_size=50), max_size=4),
    arms=st.lists(NAMES, max_size=3, unique=True),
    subject=SUBJECTS,
)
@settings(max_examples=40)
def test_waits_for_the_first_token(
    waits: dict[str, dict[str, float]], arms: list[str], subject: Subject
) -> None:
    _check(live_ttft_figure(story.live_view(agent_ttft_ms=waits), arms, subject), subject)


@given(spreads=st.dictionaries(TEXTS, SPREADS, max_size=50), virtual=st.booleans())
@settings(max_examples=40)
def test_spreads_of_the_wait_for_the_first_token(spreads: dict[str, Spread], virtual: bool) -> None:
    arm = story.arm_report("paged", 1).model_copy(update={"agent_ttft_ms": spreads})
    report = story.device_report(1, arms={"paged": arm}, virtual=virtual)
    figure = ttft_spread_figure(report, ["serial", "paged"])
    _check(figure, Subject("", "", virtual=virtual))


@given(
    walls=st.lists(st.dictionaries(st.sampled_from(["serial", "paged", "other"]), NUMBERS), max_size=30),
    virtual=st.booleans(),
)
@settings(max_examples=40)
def test_pairs(walls: list[dict[str, float]], virtual: bool) -> None:
    pairs = [PairView(pair=number, wall_s=wall_s) for number, wall_s in enumerate(walls, 1)]
    report = story.device_report(1, pairs=pairs, virtual=virtual)
    _check(paired_wall_figure(report, ["serial", "paged"]), Subject("", "", virtual=virtual))


VERDICTS = st.builds(
    MetricVerdict,
    metric=st.sampled_from(["wall_s", "ttft_ms"]) | TEXTS,
    change_percent=st.none() | NUMBERS,
    interval_percent=st.none() | st.tuples(NUMBERS, NUMBERS),
    floor_percent=st.floats(0, 100),
    statistic=st.none() | NUMBERS,
    p_value=st.none() | NUMBERS,
    mde_percent=st.none() | NUMBERS,
    interval_confidence=st.none() | NUMBERS,
    pairs=st.integers(0, 200),
    reason=TEXTS,
)


@given(verdicts=st.lists(VERDICTS, max_size=8), virtual=st.booleans())
@settings(max_examples=40)
def test_verdicts(verdicts: list[MetricVerdict], virtual: bool) -> None:
    report = story.device_report(1, verdicts=verdicts, virtual=virtual)
    _check(verdict_figure(report, "serial", "paged"), Subject("", "", virtual=virtual))


@given(
    metrics=st.dictionaries(
        st.sampled_from(["wall_s", "ttft_ms"]) | TEXTS, st.tuples(SPREADS, SPREADS), max_size=8
    ),
    subject=SUBJECTS,
)
@settings(max_examples=40)
def test_comparisons(metrics: dict[str, tuple[Spread, Spread]], subject: Subject) -> None:
    _check(spreads_figure(story.comparison(metrics=metrics, change_percent={}), subject), subject)
