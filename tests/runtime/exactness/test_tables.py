"""Block tables over real tensors: appended to, forked, truncated, paused, evicted; logits as in a dense run.

The scheduler neither forks nor truncates; what will (branching agents, speculation) finds it held here. What
the accounting itself promises is in tests/runtime/kv/test_invariants.py; here it is what attention reads.
"""

from dataclasses import dataclass
from functools import cache

import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from torch import Tensor

from runtime.kv.block_pool import BlockPool
from runtime.kv.block_table import BlockTable, CopyList
from runtime.kv.contamination import BlockShadow
from runtime.kv.errors import PoolExhaustedError
from runtime.kv.prefix_cache import PrefixCache
from runtime.model.contiguous_kv import ContiguousKV
from runtime.model.forward_batch import ForwardBatch, Span
from runtime.model.paged_kv import PagedKV
from tests.runtime.exactness.small_models import FAMILIES, small_model, tiers

TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=7)
CHOICE = st.integers(0, 99)
LONGEST_TOKENS = 60
TOLERANCE = 1e-4


@cache
def dense(family: str, tokens: tuple[int, ...]) -> Tensor:
    """Logits after `tokens`, computed at once in a contiguous cache."""
    model = small_model(family)
    kv = ContiguousKV(model.config, len(tokens), model.placement)
    logits = model.forward(ForwardBatch((Span(tokens, 0),)), kv)[0].clone()
    kv.free()
    return logits


@dataclass
class Holder:
    """A sequence: its table and the tokens whose KV it has."""

    table: BlockTable
    tokens: list[int]


class TablesOverTensors(RuleBasedStateMachine):
    """Several sequences compute in one batch, as in a step."""

    @initialize(
        kernels=st.tuples(st.sampled_from(sorted(FAMILIES)), st.sampled_from(tiers())),
        blocks=st.integers(4, 14),
        block_tokens=st.integers(2, 5),
    )
    def start(self, kernels: tuple[str, str], blocks: int, block_tokens: int) -> None:
        self.family, _ = kernels
        self.model = small_model(*kernels)
        self.pool = BlockPool(blocks, block_tokens)
        self.cache = PrefixCache(self.pool)
        self.copies = CopyList(self.pool)
        self.shadow = BlockShadow(block_tokens)
        self.kv = PagedKV(self.model.config, blocks, block_tokens, self.model.placement)
        self.live: dict[int, Holder] = {}
        self.next_id = 0

    def _pick(self, choice: int) -> Holder:
        return list(self.live.values())[choice % len(self.live)]

    def _compute(self, work: list[tuple[Holder, list[int]]]) -> None:
        """Copies, then one forward for all; every row's logits are the dense ones."""
        copies = self.copies.waiting()
        self.kv.copy_slots((copy.source, copy.target, copy.tokens) for copy in copies)
        for copy in copies:
            self.shadow.copy(copy)
        self.copies.settle()
        spans = tuple(Span(new, len(holder.tokens), 1, tuple(holder.table.blocks)) for holder, new in work)
        logits = self.model.forward(ForwardBatch(spans), self.kv)
        for row, (holder, new) in zip(logits, work, strict=True):
            self.shadow.write(holder.table.blocks, len(holder.tokens), new)
            holder.tokens += new
            expected = dense(self.family, tuple(holder.tokens))
            assert (row - expected).abs().max() <= TOLERANCE * expected.abs().max()
            assert torch.equal(row.argmax(), expected.argmax())
        for number, holder in self.live.items():
            self.shadow.verify(number, holder.table.blocks, holder.tokens)

    @rule(prompt=TOKENS)
    def admit(self, prompt: list[int]) -> None:
        holder = Holder(BlockTable(self.cache, self.copies, self.next_id), [])
        match = self.cache.match(prompt)
        try:
            holder.table.join(match)
        except PoolExhaustedError:
            return
        holder.tokens = prompt[: match.matched_tokens]
        new = prompt[match.matched_tokens :]
        try:
            holder.table.append(len(new))
        except PoolExhaustedError:
            holder.table.release()
            self.copies.settle()
            return
        self.live[self.next_id] = holder
        self.next_id += 1
        self._compute([(holder, new)])

    @precondition(lambda self: self.live)
    @rule(parts=st.lists(TOKENS, min_size=1, max_size=4), are_decodes=st.booleans())
    def several_compute_together(self, parts: list[list[int]], are_decodes: bool) -> None:
        work = []
        for holder, tokens in zip(self.live.values(), parts, strict=False):
            new = tokens[:1] if are_decodes else tokens
            fits = holder.table.blocks_needed(len(new)) <= self.pool.available
            if fits and len(holder.tokens) + len(new) <= LONGEST_TOKENS:
                holder.table.append(len(new))
                work.append((holder, new))
        if work:
            self._compute(work)

    @precondition(lambda self: self.live)
    @rule(choice=CHOICE)
    def fork(self, choice: int) -> None:
        parent = self._pick(choice)
        if len(self.live) < 5:
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
    def publish(self, choice: int) -> None:
        holder = self._pick(choice)
        holder.table.publish_tail(holder.tokens)

    @precondition(lambda self: self.live)
    @rule(choice=CHOICE)
    def pause_for_a_tool(self, choice: int) -> None:
        holder = self.live.pop(list(self.live)[choice % len(self.live)])
        holder.table.publish_tail(holder.tokens)
        holder.table.release()

    @rule(count=st.integers(1, 6))
    def memory_is_short_for_a_moment(self, count: int) -> None:
        self.pool.release(self.pool.allocate(min(count, self.pool.available)))

    def teardown(self) -> None:
        if hasattr(self, "kv"):
            self.kv.free()


TestTablesOverTensors = TablesOverTensors.TestCase
TestTablesOverTensors.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
