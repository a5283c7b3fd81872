"""Pool, cache and tables together, under any interleaving of what sequences do to them."""

from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from runtime.kv.block_pool import BlockPool
from runtime.kv.block_table import BlockTable, CopyList
from runtime.kv.contamination import BlockShadow
from runtime.kv.errors import PoolExhaustedError
from runtime.kv.observer import RecordingObserver
from runtime.kv.prefix_cache import PrefixCache
from runtime.kv.prefix_node import NodeState, PrefixNode
from tests.runtime.kv.ledger import Ledger

# Few different tokens: prefixes collide all the time.
TOKENS = st.lists(st.integers(0, 1), min_size=1, max_size=9)
CHOICE = st.integers(0, 99)


@dataclass
class Holder:
    """A sequence: its table and the tokens whose KV it has computed."""

    table: BlockTable
    tokens: list[int]


class TablesOverAShadow(RuleBasedStateMachine):
    """The shadow plays the tensors: every write goes through a table, every copy as instructed."""

    @initialize(capacity=st.integers(2, 10), block_tokens=st.integers(2, 7))
    def start(self, capacity: int, block_tokens: int) -> None:
        self.observer = RecordingObserver()
        self.pool = BlockPool(capacity, block_tokens, self.observer)
        self.cache = PrefixCache(self.pool, "salt")
        self.copies = CopyList(self.pool)
        self.shadow = BlockShadow(block_tokens)
        self.ledger = Ledger(capacity)
        self.live: dict[int, Holder] = {}
        self.pins: list[int] = []
        self.next_id = 0

    def _pick(self, choice: int) -> Holder:
        return list(self.live.values())[choice % len(self.live)]

    def _make_copies(self) -> None:
        for copy in self.copies.waiting():
            assert self._tables_holding(copy.target) == 1
            self.shadow.copy(copy)
        self.copies.settle()

    def _tables_holding(self, block: int) -> int:
        return sum(holder.table.blocks.count(block) for holder in self.live.values())

    def _compute(self, holder: Holder, tokens: list[int]) -> None:
        """What a step does: append, copy, write."""
        slots = holder.table.append(len(tokens))
        self._make_copies()
        for slot in slots:
            block, offset = divmod(slot, self.pool.block_tokens)
            assert self._tables_holding(block) == 1, "a write to a block that others hold"
            assert offset >= self.pool.published_tokens(block), "a write to published content"
        self.shadow.write(holder.table.blocks, len(holder.tokens), tokens)
        holder.tokens += tokens

    @rule(prompt=TOKENS)
    def admit(self, prompt: list[int]) -> None:
        holder = Holder(BlockTable(self.cache, self.copies, self.next_id), [])
        match = self.cache.match(prompt)
        assert match.matched_tokens < len(prompt)
        self.live[self.next_id] = holder
        try:
            holder.table.join(match)
            self._make_copies()
            holder.tokens = prompt[: match.matched_tokens]
            self._compute(holder, prompt[match.matched_tokens :])
        except PoolExhaustedError:
            holder.table.release()
            del self.live[self.next_id]
        self.next_id += 1

    @precondition(lambda self: self.live)
    @rule(choice=CHOICE, tokens=TOKENS)
    def append(self, choice: int, tokens: list[int]) -> None:
        holder = self._pick(choice)
        before = (list(holder.table.blocks), self.pool.counts())
        needed, available = holder.table.blocks_needed(len(tokens)), self.pool.available
        if needed > available:
            with pytest.raises(PoolExhaustedError):
                holder.table.append(len(tokens))
            assert before == (holder.table.blocks, self.pool.counts())
            return
        allocations = self.pool.counts().allocations
        self._compute(holder, tokens)
        assert self.pool.counts().allocations - allocations == needed

    @precondition(lambda self: self.live)
    @rule(choice=CHOICE)
    def fork(self, choice: int) -> None:
        parent = self._pick(choice)
        self.live[self.next_id] = Holder(parent.table.fork(self.next_id), list(parent.tokens))
        self.next_id += 1

    @precondition(lambda self: self.live)
    @rule(choice=CHOICE, kept=CHOICE)
    def truncate(self, choice: int, kept: int) -> None:
        holder = self._pick(choice)
        kept %= len(holder.tokens) + 1
        holder.table.truncate(kept)
        del holder.tokens[kept:]

    @precondition(lambda self: self.live)
    @rule(choice=CHOICE)
    def publish_full_blocks(self, choice: int) -> None:
        holder = self._pick(choice)
        holder.table.publish(holder.tokens)

    @precondition(lambda self: self.live)
    @rule(choice=CHOICE)
    def publish_the_tail(self, choice: int) -> None:
        holder = self._pick(choice)
        holder.table.publish_tail(holder.tokens)

    @precondition(lambda self: self.live)
    @rule(choice=CHOICE, tokens=st.lists(st.integers(0, 1), min_size=1, max_size=2))
    def publish_a_tail_that_grows(self, choice: int, tokens: list[int]) -> None:
        """A prompt's tail, then what was decoded behind it: one block, one content."""
        holder = self._pick(choice)
        holder.table.publish_tail(holder.tokens)
        if holder.table.blocks_needed(len(tokens)) <= self.pool.available:
            self._compute(holder, tokens)
            holder.table.publish_tail(holder.tokens)

    @precondition(lambda self: self.live)
    @rule(choice=CHOICE)
    def pause_for_a_tool(self, choice: int) -> None:
        """Finish and preempt are the same to the pool: publish all, hold nothing."""
        number = list(self.live)[choice % len(self.live)]
        holder = self.live.pop(number)
        holder.table.publish_tail(holder.tokens)
        holder.table.release()

    @precondition(lambda self: self.live)
    @rule(choice=CHOICE)
    def cancel(self, choice: int) -> None:
        self.live.pop(list(self.live)[choice % len(self.live)]).table.release()

    @precondition(lambda self: self.live)
    @rule(choice=CHOICE)
    def discard(self, choice: int) -> None:
        self.live.pop(list(self.live)[choice % len(self.live)]).table.discard()

    @rule(count=st.integers(1, 6))
    def pressure(self, count: int) -> None:
        """Others take memory for a moment: idle content goes."""
        blocks = self.pool.allocate(min(count, self.pool.available))
        self.pool.release(blocks)

    @precondition(lambda self: self.live)
    @rule(choice=CHOICE)
    def pin(self, choice: int) -> None:
        blocks = self._pick(choice).table.blocks
        if blocks:
            self.pool.pin(blocks[0])
            self.pins.append(blocks[0])

    @precondition(lambda self: self.pins)
    @rule()
    def unpin(self) -> None:
        self.pool.unpin(self.pins.pop())

    @invariant()
    def references_are_tables_and_pins(self) -> None:
        held = Counter(block for holder in self.live.values() for block in holder.table.blocks)
        held.update(self.pins)
        assert all(self.pool.ref_count(block) == held[block] for block in range(self.pool.capacity))

    @invariant()
    def facts_rebuild_the_accounting(self) -> None:
        self.ledger.replay(self.observer)
        self.ledger.agree_with(self.pool)
        for number, holder in self.live.items():
            assert self.ledger.blocks_of(number) == sorted(holder.table.blocks)

    @invariant()
    def every_block_holds_its_holders_tokens(self) -> None:
        for number, holder in self.live.items():
            assert holder.table.length_tokens == len(holder.tokens)
            self.shadow.verify(number, holder.table.blocks, holder.tokens)

    @invariant()
    def the_cache_claims_only_what_the_slots_hold(self) -> None:
        seen: set[int] = set()
        for node in self.cache.nodes():
            assert node.state is NodeState.READY
            assert node.block not in seen, "two contents in one block"
            seen.add(node.block)
            blocks, tokens = path_of(node)
            self.shadow.verify(-1, blocks, tokens)
            assert self.pool.published_tokens(node.block) == len(node.tokens)
        assert len(seen) == len(self.cache)
        published = {b for b in range(self.pool.capacity) if self.pool.published_tokens(b)}
        assert published == seen

    def teardown(self) -> None:
        if not hasattr(self, "pool"):
            return
        for holder in self.live.values():
            holder.table.release()
        for block in self.pins:
            self.pool.unpin(block)
        assert all(self.pool.ref_count(block) == 0 for block in range(self.pool.capacity))
        assert len(self.pool.allocate(self.pool.capacity)) == self.pool.capacity
        assert len(self.cache) == 0


def path_of(node: PrefixNode) -> tuple[list[int], list[int]]:
    """Blocks and tokens from the first block down to `node`."""
    blocks: list[int] = []
    tokens: list[int] = []
    while node.parent is not None:
        blocks.insert(0, node.block)
        tokens[:0] = node.tokens
        node = node.parent
    return blocks, tokens


TestTablesOverAShadow = TablesOverAShadow.TestCase
TestTablesOverAShadow.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
