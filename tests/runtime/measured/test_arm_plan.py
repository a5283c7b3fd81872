from typing import Any

import pytest

from contract.calibration import CalibrationKey
from contract.jobs import ArmSpec, EngineOptions
from runtime.errors import PoolTooSmallError
from runtime.kv.kv_format import KVFormat
from runtime.measured.arm_plan import ArmPlan, MachineMemory, budget_event, plan_arm
from runtime.measured.options import decide_options
from runtime.measured.sizes import WorkloadSizes

MIB = 1 << 20
KV_FORMAT = KVFormat(layers=2, kv_heads=2, head_dim=16, value_bytes=4)
BLOCK_BYTES = KV_FORMAT.block_bytes(16)
SIZES = WorkloadSizes(at_least_tokens=200, agent_tokens=(200,) * 5, shared_tokens=100)

HERE = CalibrationKey(
    model_digest="sha256:0", runtime_version="1", torch_version="2", cpu="c", cores=2,
    device="cpu", tier="aten", dtype="float32",
)  # fmt: skip


def planned(mode: str, limit_bytes: int | None = None, **engine: Any) -> ArmPlan:
    memory = MachineMemory(
        limit_bytes, physical_bytes=1000 * MIB, weights_bytes=100 * MIB, rest_bytes=50 * MIB
    )
    options = EngineOptions(block_tokens=16, **engine)
    setup = decide_options(ArmSpec(arm="a", mode=mode, engine=options), HERE)
    return plan_arm(setup, KV_FORMAT, memory, SIZES)


def test_the_rows_of_the_table_add_up_to_the_limit() -> None:
    event = budget_event(planned("paged", limit_bytes=500 * MIB))
    limit, *rows = event.rows
    assert event.limit_bytes == limit.size_bytes == 500 * MIB
    assert sum(row.size_bytes for row in rows) == limit.size_bytes
    assert next(row for row in rows if row.name == "reserve").size_bytes == 100 * MIB
    assert event.block_size_bytes == BLOCK_BYTES


def test_without_a_limit_the_table_says_so_and_counts_with_the_machine_s_memory() -> None:
    event = budget_event(planned("paged"))
    assert event.limit_bytes is None
    assert event.rows[0].size_bytes == 1000 * MIB
    assert "no limit" in event.rows[0].note


def test_the_pool_is_no_larger_than_the_workload_can_use() -> None:
    plan = planned("paged")
    assert 1000 // 16 <= plan.budget.pool_blocks < 2 * 1000 // 16
    assert plan.agents_admitted == 5


def test_the_serial_arm_has_one_contiguous_cache_for_its_longest_sequence() -> None:
    plan = planned("serial")
    assert 200 <= plan.contiguous_tokens < 200 + 16
    assert plan.agents_admitted == 1


@pytest.mark.parametrize("mode", ["serial", "serial_cached", "paged"])
def test_a_pool_smaller_than_one_sequence_is_refused(mode: str) -> None:
    with pytest.raises(PoolTooSmallError) as refused:
        planned(mode, kv_pool_tokens=199)
    assert (refused.value.needed_blocks, refused.value.have_blocks) == (13, 12)


def test_memory_decides_how_many_agents_are_admitted() -> None:
    # Room for the shared beginning (6 blocks), two agents' own blocks (7 each) and not three.
    plan = planned("paged", kv_pool_tokens=16 * 24)
    assert plan.budget.pool_blocks == 24
    assert plan.agents_admitted == 2
    assert plan.scheduler.max_batch == 2


def test_the_options_bound_the_batch_and_serial_cached_takes_one_call_at_a_time() -> None:
    assert planned("paged", max_batch_sequences=3).scheduler.max_batch == 3
    assert planned("serial_cached").scheduler.max_batch == 1


def test_a_limit_in_the_options_replaces_the_machine_s() -> None:
    assert planned("paged", limit_bytes=900 * MIB, memory_limit_bytes=400 * MIB).limit_bytes == 400 * MIB


def test_a_limit_below_the_weights_leaves_no_pool() -> None:
    with pytest.raises(PoolTooSmallError):
        planned("paged", memory_limit_bytes=120 * MIB)
