"""The bound of the work: hand-counted bytes and operations, and the order of the arms for any shape."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.bench.bound import Costs, Work, agent_work, paged_s, serial_cached_s, serial_s, step_s
from tests.fakes.model_shapes import SMOLLM2

# Five agents, 2,000 shared tokens, a task of 60, three calls of 64, results of 80.
CALLS = ((2060, 64), (2204, 64), (2348, 64))
SEED = Work((agent_work(CALLS),) * 5, shared_tokens=2000)


def bf16(read_bytes_per_s: float) -> Costs:
    return Costs(SMOLLM2, 269_000_000, 23_040, read_bytes_per_s, 410e9)


def test_a_call_computes_its_own_tokens_and_the_last_output_of_the_call_before() -> None:
    assert [call.prompt_tokens - call.kept_tokens for call in agent_work(CALLS)] == [2060, 81, 81]


def test_the_known_work_takes_what_was_worked_out_before() -> None:
    """By another program, in bfloat16: 3.9 to 4.7 s paged, 9.4 to 13.2 serial cached, 30 to 34 serial."""
    slow, fast = bf16(28e9), bf16(43e9)
    assert 3.8 < paged_s(SEED, fast) < 4.0
    assert 4.5 < paged_s(SEED, slow) < 4.8
    assert 9.2 < serial_cached_s(SEED, fast) < 9.6
    assert 12.8 < serial_cached_s(SEED, slow) < 13.4
    assert 29.0 < serial_s(SEED, fast) < 31.0
    assert 33.0 < serial_s(SEED, slow) < 35.0


def test_a_step_reads_the_shared_prefix_once() -> None:
    costs = Costs(SMOLLM2, 1000, 10, 1e3, 1e9)
    assert step_s([100, 120], 80, costs) == pytest.approx((1000 + 10 * (80 + 20 + 40)) / 1e3)
    assert step_s([100], 80, costs) == pytest.approx((1000 + 10 * 100) / 1e3)


@given(
    agents=st.lists(
        st.lists(st.tuples(st.integers(1, 60), st.integers(1, 12)), min_size=1, max_size=4),
        min_size=1,
        max_size=5,
    ),
    shared=st.integers(0, 40),
)
def test_sharing_and_batching_are_never_bounded_above_what_they_avoid(
    agents: list[list[tuple[int, int]]], shared: int
) -> None:
    plans = []
    for calls in agents:
        context, grown = shared, []
        for own, output in calls:
            context += own
            grown.append((context, output))
            context += output
        plans.append(agent_work(grown))
    work = Work(tuple(plans), shared if len(plans) > 1 else 0)
    costs = bf16(30e9)
    assert paged_s(work, costs) <= serial_cached_s(work, costs) * (1 + 1e-9)
    assert serial_cached_s(work, costs) <= serial_s(work, costs) * (1 + 1e-9)
