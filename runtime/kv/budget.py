"""The memory budget: what the KV pool may take, and how many agents that admits."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from runtime.errors import PoolTooSmallError
from runtime.kv.kv_format import KVFormat

RESERVE_PERCENT = 20
"""Kept free: a limit counts memory that no table of ours names."""


@dataclass(frozen=True, slots=True)
class BudgetInput:
    """What is known before the pool exists.

    `rest_bytes`: interpreter, activations, tokenizer. `prefix_percent` of the pool is kept out of the
    admission of agents, for prefixes that nobody holds. `pool_blocks_max` caps the pool below what fits.
    """

    limit_bytes: int
    weights_bytes: int
    rest_bytes: int
    kv_format: KVFormat
    block_tokens: int
    reserve_percent: int = RESERVE_PERCENT
    prefix_percent: int = 10
    pool_blocks_max: int | None = None


@dataclass(frozen=True, slots=True)
class BudgetLine:
    """One row of the table; the rows after the first add up to the first."""

    name: str
    size_bytes: int
    note: str


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """`pool_blocks` is the KV pool's capacity, `prefix_blocks` of them kept for cached prefixes."""

    given: BudgetInput
    pool_blocks: int
    prefix_blocks: int

    @property
    def block_bytes(self) -> int:
        """Bytes of one block."""
        return self.given.kv_format.block_bytes(self.given.block_tokens)

    @property
    def reserve_bytes(self) -> int:
        """The part of the limit that stays free."""
        return self.given.limit_bytes * self.given.reserve_percent // 100

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold `tokens` tokens of one sequence."""
        return -(-tokens // self.given.block_tokens)

    def agents(self, agent_tokens: Sequence[int], shared_tokens: int = 0) -> int:
        """How many agents fit at once, whichever they are: the largest are counted first.

        agent_tokens: the context of each, of which the first `shared_tokens` are held once. Only whole shared
        blocks count as shared.
        """
        shared_blocks = min(shared_tokens, max(agent_tokens)) // self.given.block_tokens
        free_blocks = self.pool_blocks - max(self.prefix_blocks, shared_blocks)
        own_blocks = [max(0, self.blocks_for(tokens) - shared_blocks) for tokens in agent_tokens]
        own_blocks.sort(reverse=True)
        return sum(taken <= free_blocks for taken in accumulate(own_blocks))

    def rows(self) -> tuple[BudgetLine, ...]:
        """The table as data, in bytes; unused is what the cap or an incomplete last block leaves over."""
        given, agent_blocks = self.given, self.pool_blocks - self.prefix_blocks
        size = f"{given.block_tokens} tokens, {self.block_bytes} bytes each"
        parts = (
            BudgetLine(
                "reserve", self.reserve_bytes, f"{given.reserve_percent} % of the limit, never planned"
            ),
            BudgetLine("weights", given.weights_bytes, "model weights"),
            BudgetLine("rest", given.rest_bytes, "interpreter, activations, tokenizer"),
            BudgetLine("kv pool", agent_blocks * self.block_bytes, f"{agent_blocks} blocks of {size}"),
            BudgetLine(
                "prefix cache",
                self.prefix_blocks * self.block_bytes,
                f"{self.prefix_blocks} blocks, same pool",
            ),
        )
        unused = given.limit_bytes - sum(part.size_bytes for part in parts)
        return (
            BudgetLine("limit", given.limit_bytes, "what the process may use"),
            *parts,
            BudgetLine("unused", unused, "left over"),
        )


def plan_budget(given: BudgetInput, sequence_tokens: int) -> MemoryBudget:
    """The largest pool that fits; PoolTooSmallError when it cannot hold one sequence of `sequence_tokens`."""
    block_bytes = given.kv_format.block_bytes(given.block_tokens)
    if block_bytes < 1 or given.limit_bytes < 1 or min(given.weights_bytes, given.rest_bytes) < 0:
        raise ValueError(f"a budget needs a limit and a KV format, and no negative part: {given}")
    if not 0 <= given.reserve_percent < 100 or not 0 <= given.prefix_percent < 100:
        raise ValueError(f"shares must be 0 to 99 %: {given.reserve_percent}, {given.prefix_percent}")
    reserve = given.limit_bytes * given.reserve_percent // 100
    left = given.limit_bytes - reserve - given.weights_bytes - given.rest_bytes
    blocks = max(0, left // block_bytes)
    if given.pool_blocks_max is not None:
        blocks = min(blocks, given.pool_blocks_max)
    needed = -(-sequence_tokens // given.block_tokens)
    if blocks < max(1, needed):
        raise PoolTooSmallError(needed_blocks=max(1, needed), have_blocks=blocks)
    prefix = min(blocks * given.prefix_percent // 100, blocks - needed)
    return MemoryBudget(given, blocks, prefix)
