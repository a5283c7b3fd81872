"""The long prefill arrives while the other decodes, or nothing is reported."""

import pytest

from runtime.bench.arriving_prefill import ARRIVING, DECODING, arriving_prefill, worst_gap_vs_median_itl
from runtime.bench.trial_events import TrialEvents
from tests.fakes.trial_facts import trial_facts


def told(decoding_ms: list[int], read_ms: list[int]) -> TrialEvents:
    token_ms = {(DECODING, 0): decoding_ms, (ARRIVING, 0): [1], (ARRIVING, 1): read_ms}
    return TrialEvents(trial_facts(token_ms))


def test_the_longest_gap_is_told_against_the_median() -> None:
    trial = told([10, 20, 30, 75, 85, 95], [70, 72])
    assert worst_gap_vs_median_itl(trial) == pytest.approx(4.5)


@pytest.mark.parametrize("read_ms", [[], [5], [200]])
def test_a_prefill_that_did_not_meet_a_decode_measured_nothing(read_ms: list[int]) -> None:
    assert worst_gap_vs_median_itl(told([10, 20, 30], read_ms)) is None


def test_the_arriving_agent_has_written_before_it_reads() -> None:
    work = arriving_prefill(2000)
    arriving = next(plan for plan in work.agents if plan.agent == ARRIVING)
    decoding = next(plan for plan in work.agents if plan.agent == DECODING)
    assert len(arriving.calls) == 2
    assert arriving.calls[0].max_output_tokens < decoding.calls[0].max_output_tokens
    assert {segment.tokens for segment in work.segments} == {32, 2000}
    assert work.digest != arriving_prefill(1000).digest
