"""Live figures: seconds since the first event, peaks kept when points are thinned."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.rest import Point, Series
from measures.facts.reader import attempt_facts
from measures.metrics.series import MAX_POINTS, live_series, newest_agent_ttft_ms, thin
from tests.fakes.attempt_story import AttemptStory, CallStory, TrialStory


def _series(story: AttemptStory) -> dict[str, Series]:
    return {line.label: line for line in live_series(story.events, attempt_facts(story.events))}


def test_tokens_are_counted_per_second_and_silence_is_a_zero() -> None:
    story = AttemptStory()
    story.trial(TrialStory(1, "paged", 1, calls=[CallStory(token_ms=(100, 200, 2_500))], finished_ms=3_000.0))
    points = _series(story)["output tokens per second"].points
    assert [(point.t_s, point.value) for point in points] == [(0.0, 2.0), (1.0, 0.0), (2.0, 1.0)]


def test_footprint_and_limit_are_lines_in_megabytes() -> None:
    story = AttemptStory()
    story.clock_ns += 2_000_000_000
    story.memory(None, 300_000_000, limit_bytes=900_000_000)
    lines = _series(story)
    assert lines["footprint"].points == [Point(t_s=2.0, value=300.0)]
    assert lines["limit"].points == [Point(t_s=2.0, value=900.0)]


def test_each_arm_and_agent_has_its_ttft_trial_by_trial() -> None:
    story = AttemptStory()
    for trial in (1, 2):
        story.trial(TrialStory(trial, "paged", trial, calls=[CallStory("a1", token_ms=(100.0 * trial,))]))
    assert [point.value for point in _series(story)["paged a1"].points] == pytest.approx([100.0, 200.0])
    assert newest_agent_ttft_ms(attempt_facts(story.events)) == {"paged": {"a1": 200.0}}


def test_a_line_without_a_point_is_left_out() -> None:
    assert _series(AttemptStory()) == {}
    assert live_series({}, attempt_facts({})) == []


@pytest.mark.parametrize("jump_s", [10**6, 2**31, (2**63 - 1) // 10**9 - 10])
def test_a_clock_that_jumps_makes_no_more_points_than_a_figure_can_show(jump_s: int) -> None:
    story = AttemptStory()
    calls = [CallStory(token_ms=(100, 200, 300, jump_s * 1e3))]
    story.trial(TrialStory(1, "paged", 1, calls=calls, finished_ms=None))
    points = _series(story)["output tokens per second"].points
    assert len(points) <= MAX_POINTS
    assert (points[0].t_s, points[0].value) == (0.0, 3.0)
    assert sum(point.value for point in points) == 4.0


@given(st.lists(st.integers(0, 5_000), min_size=1, max_size=60))
def test_many_windows_keep_their_busiest_in_their_order(seconds: list[int]) -> None:
    story = AttemptStory()
    tokens = sorted(second * 1e3 for second in seconds)
    story.trial(TrialStory(1, "paged", 1, calls=[CallStory(token_ms=tokens)], finished_ms=None))
    points = _series(story)["output tokens per second"].points
    assert len(points) <= MAX_POINTS
    assert [point.t_s for point in points] == sorted({point.t_s for point in points})
    assert max(point.value for point in points) == max(seconds.count(second) for second in seconds)


@given(st.lists(st.floats(0, 1e6), max_size=3 * MAX_POINTS))
def test_thinning_keeps_the_peak_and_the_order(values: list[float]) -> None:
    points = [Point(t_s=float(second), value=value) for second, value in enumerate(values)]
    kept = thin(points)
    assert len(kept) <= MAX_POINTS
    assert [point.t_s for point in kept] == sorted(point.t_s for point in kept)
    assert max((point.value for point in kept), default=0.0) == max(values, default=0.0)
