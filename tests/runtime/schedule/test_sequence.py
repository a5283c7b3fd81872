"""The state table: every pair of state and cause, and what follows from it."""

import itertools

import pytest

from runtime.kv.block_pool import BlockPool
from runtime.kv.block_table import BlockTable, CopyList
from runtime.kv.prefix_cache import PrefixCache
from runtime.schedule.errors import InvalidTransitionError
from runtime.schedule.sequence import RUNNING, TERMINAL, TRANSITIONS, CallSpec, Cause, Sequence, Status


def sequence_of(prompt: tuple[int, ...] = (1, 2), **changes: object) -> Sequence:
    pool = BlockPool(1, 4)
    spec = CallSpec(7, "agent", 0, prompt, **{"max_output_tokens": 2, **changes})
    return Sequence(spec, 0, BlockTable(PrefixCache(pool), CopyList(pool), 7))


@pytest.mark.parametrize(("status", "cause"), list(itertools.product(Status, Cause)))
def test_a_move_is_in_the_table_or_refused(status: Status, cause: Cause) -> None:
    sequence = sequence_of()
    sequence.status = status
    if (status, cause) in TRANSITIONS:
        sequence.move(cause)
        assert sequence.status is TRANSITIONS[status, cause]
    else:
        with pytest.raises(InvalidTransitionError):
            sequence.move(cause)
        assert sequence.status is status


def test_the_terminal_states_are_the_three_ends() -> None:
    assert {Status.FINISHED, Status.FAILED, Status.CANCELLED} == TERMINAL


def test_every_state_is_reachable_and_every_live_state_can_be_cancelled_and_fail() -> None:
    assert set(TRANSITIONS.values()) == set(Status)
    for status in set(Status) - TERMINAL:
        assert TRANSITIONS[status, Cause.CANCELLED] is Status.CANCELLED
        assert TRANSITIONS[status, Cause.FAILED] is Status.FAILED


def test_only_running_states_can_be_preempted() -> None:
    assert {status for status, cause in TRANSITIONS if cause is Cause.PREEMPTED} == RUNNING


@pytest.mark.parametrize(
    ("output", "stop_tokens", "complete"),
    [([], {2}, False), ([5], {2}, False), ([5, 6], {9}, True), ([9], {9}, True)],
)
def test_a_sequence_is_complete_at_its_limit_or_its_stop_token(
    output: list[int], stop_tokens: set[int], complete: bool
) -> None:
    sequence = sequence_of(stop_tokens=frozenset(stop_tokens))
    sequence.tokens += output
    assert sequence.is_complete is complete
    assert sequence.output == output


@pytest.mark.parametrize("wrong", [{"prompt": ()}, {"max_output_tokens": 0}])
def test_a_call_without_prompt_or_output_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="at least one output token"):
        sequence_of(**wrong)


def test_waiting_raises_the_priority_and_a_follower_lends_its_own() -> None:
    sequence = sequence_of(priority=1)
    sequence.waited_steps = 7
    assert sequence.priority(aging_steps=4) == 2
    sequence.urged_priority = 9
    assert sequence.priority(aging_steps=4) == 9
