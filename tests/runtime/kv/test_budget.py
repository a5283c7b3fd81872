"""The memory budget: the table adds up, the pool fits, the agents follow from the memory."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.errors import PoolTooSmallError
from runtime.kv.budget import BudgetInput, plan_budget
from runtime.kv.kv_format import KVFormat

SMOLLM2 = KVFormat(layers=30, kv_heads=3, head_dim=64, value_bytes=4)
MIB = 1 << 20
GIVEN = BudgetInput(
    limit_bytes=2048 * MIB, weights_bytes=540 * MIB, rest_bytes=200 * MIB, kv_format=SMOLLM2, block_tokens=32
)


@pytest.mark.parametrize(
    ("kv_format", "kib_per_token"),
    [
        pytest.param(KVFormat(28, 2, 128, 2), 28, id="Qwen2.5-1.5B fp16"),
        pytest.param(KVFormat(16, 8, 64, 2), 32, id="Llama-3.2-1B fp16"),
        pytest.param(KVFormat(28, 8, 128, 2), 112, id="Llama-3.2-3B fp16"),
    ],
)
def test_a_tokens_kv_follows_from_layers_heads_and_precision(kv_format: KVFormat, kib_per_token: int) -> None:
    assert kv_format.token_bytes == kib_per_token * 1024
    assert kv_format.block_bytes(32) == 32 * kib_per_token * 1024


def test_the_pool_takes_what_is_left_after_reserve_weights_and_rest() -> None:
    budget = plan_budget(GIVEN, sequence_tokens=2048)
    left = GIVEN.limit_bytes - GIVEN.limit_bytes // 5 - GIVEN.weights_bytes - GIVEN.rest_bytes
    assert budget.pool_blocks == left // budget.block_bytes
    assert budget.prefix_blocks == budget.pool_blocks // 10


def test_the_agents_follow_from_the_memory_and_sharing_admits_more() -> None:
    budget = plan_budget(replace(GIVEN, pool_blocks_max=200, prefix_percent=0), sequence_tokens=1024)
    assert budget.agents([1600] * 9) == 4
    assert budget.agents([1600] * 9, shared_tokens=800) == 7
    assert budget.agents([64_000]) == 0


def test_a_small_agent_beside_a_large_one_is_counted_with_its_own_size() -> None:
    budget = plan_budget(replace(GIVEN, pool_blocks_max=100, prefix_percent=0), sequence_tokens=1024)
    assert budget.agents([64, 2560, 320]) == 3
    assert budget.agents([64, 2560, 1600]) == 1
    assert budget.agents([0, 2560, 2560], shared_tokens=2560) == 3


def test_a_pool_smaller_than_one_sequence_is_refused_with_both_numbers() -> None:
    small = replace(GIVEN, pool_blocks_max=10)
    with pytest.raises(PoolTooSmallError) as refused:
        plan_budget(small, sequence_tokens=321)
    assert (refused.value.needed_blocks, refused.value.have_blocks) == (11, 10)
    assert plan_budget(small, sequence_tokens=320).prefix_blocks == 0


def test_weights_beyond_the_limit_leave_no_pool_at_all() -> None:
    with pytest.raises(PoolTooSmallError) as refused:
        plan_budget(replace(GIVEN, weights_bytes=GIVEN.limit_bytes), sequence_tokens=1)
    assert refused.value.have_blocks == 0


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"limit_bytes": 0}, id="no limit"),
        pytest.param({"rest_bytes": -1}, id="negative part"),
        pytest.param({"reserve_percent": 100}, id="all reserved"),
        pytest.param({"prefix_percent": -1}, id="negative share"),
        pytest.param({"block_tokens": 0}, id="empty blocks"),
    ],
)
def test_an_impossible_input_is_a_value_error(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"budget needs|shares must"):
        plan_budget(replace(GIVEN, **wrong), sequence_tokens=1)


@given(
    limit_bytes=st.integers(MIB, 1 << 40),
    parts=st.tuples(st.integers(0, 1 << 38), st.integers(0, 1 << 38)),
    reserve_percent=st.integers(0, 99),
    prefix_percent=st.integers(0, 99),
    sequence_tokens=st.integers(1, 10_000),
)
def test_the_rows_add_up_to_the_limit_and_the_reserve_is_kept(
    limit_bytes: int,
    parts: tuple[int, int],
    reserve_percent: int,
    prefix_percent: int,
    sequence_tokens: int,
) -> None:
    given_ = BudgetInput(limit_bytes, *parts, SMOLLM2, 32, reserve_percent, prefix_percent)
    needed_bytes = SMOLLM2.block_bytes(32) * -(-sequence_tokens // 32)
    if limit_bytes - limit_bytes * reserve_percent // 100 - sum(parts) < needed_bytes:
        with pytest.raises(PoolTooSmallError):
            plan_budget(given_, sequence_tokens)
        return
    budget = plan_budget(given_, sequence_tokens)
    limit, *rows = budget.rows()
    assert sum(row.size_bytes for row in rows) == limit.size_bytes == limit_bytes
    assert all(row.size_bytes >= 0 for row in rows)
    assert budget.agents([sequence_tokens]) >= 1
    sizes = {row.name: row.size_bytes for row in rows}
    assert sizes["reserve"] == limit_bytes * reserve_percent // 100
