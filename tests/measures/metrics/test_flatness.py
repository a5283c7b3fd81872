"""A soak's footprint is flat, or it is said that it grows and by how much."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.events import Stream
from measures.facts.reader import attempt_facts
from measures.metrics.flatness import MAX_SAMPLES, Flatness, flatness_of
from tests.fakes.attempt_story import AttemptStory

MINUTE_MS = 60_000.0
MB = 1_000_000


def _soak(footprints_mb: list[float], minutes: float = 10.0, status: str = "completed") -> Flatness | None:
    """A trial of `minutes` with evenly spaced samples."""
    story = AttemptStory()
    story.control("trial_started", trial=1, arm="paged", pair=1, warmup=False)
    for position, footprint_mb in enumerate(footprints_mb):
        at_ms = minutes * MINUTE_MS * position / max(1, len(footprints_mb) - 1)
        story.add(
            Stream.SAMPLES,
            "memory_sampled",
            at_ms,
            trial=1,
            footprint_bytes=round(footprint_mb * MB),
            method="story",
        )
    story.control("trial_finished", minutes * MINUTE_MS, trial=1, status=status)
    return flatness_of(attempt_facts(story.events).trials[0])


def test_a_level_footprint_is_flat() -> None:
    found = _soak([500.0] * 100)
    assert found is not None
    assert found.is_flat
    assert found.slope_mb_per_minute == 0.0
    assert str(found).startswith("Memory is flat (+0.000 MB a minute over 9.0 min")


def test_a_leak_is_found_and_measured() -> None:
    found = _soak([500.0 + 0.1 * n for n in range(101)])
    assert found is not None
    assert not found.is_flat
    assert found.slope_mb_per_minute == pytest.approx(1.0)
    assert found.growth_percent == pytest.approx(100 * 9.0 / 505.5, rel=0.01)
    assert "Memory grows" in str(found)


def test_filling_the_pool_at_the_beginning_is_no_leak() -> None:
    found = _soak([100.0 + 40.0 * n for n in range(10)] + [500.0] * 91)
    assert found is not None
    assert found.is_flat


def test_one_spike_is_no_leak() -> None:
    found = _soak([500.0] * 60 + [900.0] + [500.0] * 40)
    assert found is not None
    assert found.is_flat


def test_a_falling_footprint_is_flat() -> None:
    found = _soak([600.0 - n for n in range(100)])
    assert found is not None
    assert found.is_flat


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_trial_that_did_not_complete_says_nothing(status: str) -> None:
    assert _soak([500.0] * 100, status=status) is None


def test_too_few_samples_say_nothing() -> None:
    assert _soak([500.0] * 5) is None


@given(st.floats(-2, 2), st.integers(20, 3 * MAX_SAMPLES))
def test_the_slope_is_found_however_many_samples_there_are(slope_mb_per_minute: float, count: int) -> None:
    footprints = [500.0 + slope_mb_per_minute * 10.0 * n / (count - 1) for n in range(count)]
    found = _soak(footprints)
    assert found is not None
    assert found.slope_mb_per_minute == pytest.approx(slope_mb_per_minute, abs=1e-3)
