"""Sizes of one arm from its options, the memory limit and the workload, and the table that says so."""

import time
from dataclasses import dataclass

from contract.events import BudgetRow, MemoryBudgeted
from contract.jobs import ArmMode, EngineOptions
from runtime.kv.budget import BudgetInput, MemoryBudget, plan_budget
from runtime.kv.kv_format import KVFormat
from runtime.measured.emit import PENDING_SEQ
from runtime.measured.options import ArmSetup
from runtime.measured.sizes import WorkloadSizes
from runtime.schedule.config import SchedulerConfig


@dataclass(frozen=True, slots=True)
class MachineMemory:
    """What is known of memory.

    limit_bytes: what the process may use, None without a limit; physical_bytes: the machine's; weights_bytes
    and rest_bytes: measured in this process, after the model was loaded.
    """

    limit_bytes: int | None
    physical_bytes: int
    weights_bytes: int
    rest_bytes: int


@dataclass(frozen=True, slots=True)
class ArmPlan:
    """An arm and what it may use."""

    setup: ArmSetup
    budget: MemoryBudget
    limit_bytes: int | None
    agents_requested: int
    agents_admitted: int

    @property
    def scheduler(self) -> SchedulerConfig:
        """Steps of the paged arm; serial_cached takes one call at a time."""
        setup = self.setup
        return SchedulerConfig(
            max_batch=1
            if setup.mode == "serial_cached"
            else min(setup.max_batch_sequences, self.agents_admitted),
            # Half a chunk beside decodes: a prefill then costs a running decode at most that.
            prefill_tokens=max(16, setup.prefill_chunk_tokens // 2),
            idle_prefill_tokens=setup.prefill_chunk_tokens,
        )

    @property
    def contiguous_tokens(self) -> int:
        """Capacity of the serial arm's cache."""
        return self.budget.pool_blocks * self.setup.engine.block_tokens


def plan_arm(setup: ArmSetup, kv_format: KVFormat, memory: MachineMemory, sizes: WorkloadSizes) -> ArmPlan:
    """PoolTooSmallError when the longest sequence of the workload cannot fit."""
    engine = setup.engine
    limit_bytes = engine.memory_limit_bytes or memory.limit_bytes
    budget = plan_budget(
        BudgetInput(
            limit_bytes=limit_bytes or memory.physical_bytes,
            weights_bytes=memory.weights_bytes,
            rest_bytes=memory.rest_bytes,
            kv_format=kv_format,
            block_tokens=engine.block_tokens,
            prefix_percent=0 if setup.mode == "serial" else 10,
            pool_blocks_max=_blocks_wanted(engine, setup.mode, sizes),
        ),
        sizes.at_least_tokens,
    )
    fitting = 1 if setup.mode != "paged" else budget.agents(sizes.agent_tokens, sizes.shared_tokens)
    return ArmPlan(
        setup=setup,
        budget=budget,
        limit_bytes=limit_bytes,
        agents_requested=sizes.agents,
        # One is always let in: the scheduler fails it alone if its outputs grow beyond the pool.
        agents_admitted=max(1, min(fitting, sizes.agents, setup.max_batch_sequences)),
    )


def _blocks_wanted(engine: EngineOptions, mode: ArmMode, sizes: WorkloadSizes) -> int:
    """Blocks that the workload can use; the options may say less, never more than that."""
    size = engine.block_tokens
    if mode == "serial":
        # The baseline has one contiguous cache, as long as its longest sequence.
        wanted = -(-sizes.at_most_tokens // size)
    else:
        # Every agent's longest sequence kept whole, a tail block and a copy for each, watermarks on top.
        wanted = -(-sizes.total_tokens // size) + 2 * sizes.agents + 4
        # plan_budget keeps a tenth out of the admission of agents.
        wanted = -(-wanted * 10 // 9)
    if engine.kv_pool_tokens is not None:
        wanted = (
            min(wanted, engine.kv_pool_tokens // size) if mode == "serial" else engine.kv_pool_tokens // size
        )
    return wanted


def budget_event(plan: ArmPlan) -> MemoryBudgeted:
    """The budget of one arm as the contract's event."""
    budget = plan.budget
    rows = [BudgetRow(name=row.name, size_bytes=row.size_bytes, note=row.note) for row in budget.rows()]
    if plan.limit_bytes is None:
        rows[0] = rows[0].model_copy(update={"note": "no limit is set: the machine's memory"})
    return MemoryBudgeted(
        seq=PENDING_SEQ,
        t_mono_ns=time.monotonic_ns(),
        arm=plan.setup.spec.arm,
        limit_bytes=plan.limit_bytes,
        rows=rows,
        block_tokens=budget.given.block_tokens,
        block_size_bytes=budget.block_bytes,
        blocks=budget.pool_blocks,
        agents_requested=plan.agents_requested,
        agents_admitted=plan.agents_admitted,
    )
