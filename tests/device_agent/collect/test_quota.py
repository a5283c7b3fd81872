"""What a spool gives up, and in which order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.events.envelope import Stream
from device_agent.collect.quota import keeps

C, S, L, A = Stream.CONTROL, Stream.SAMPLES, Stream.LOG, Stream.DEVICE_AGENT


@pytest.mark.parametrize(
    ("used_percent", "kept"), [(0, {C, S, L, A}), (80, {C, S, A}), (90, {C, A}), (100, {C, A}), (500, {C, A})]
)
def test_log_goes_first_then_samples_are_thinned_and_control_stays(
    used_percent: int, kept: set[Stream]
) -> None:
    assert {stream for stream in Stream if keeps(stream, 7, used_percent, 100)} == kept


def test_thinned_samples_keep_one_of_ten_until_the_quota_is_used_up() -> None:
    assert sum(keeps(S, seq, 95, 100) for seq in range(2, 102)) == 10
    assert not any(keeps(S, seq, 100, 100) for seq in range(2, 102))


@given(st.sampled_from(Stream), st.integers(0, 10**12))
def test_the_opening_of_a_stream_is_always_kept(stream: Stream, used_bytes: int) -> None:
    assert keeps(stream, 1, used_bytes, 1000)
