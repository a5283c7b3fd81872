"""One sequence's block table: which block holds which token, and what must be copied before a write."""

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.kv.block_pool import BlockPool
from runtime.kv.errors import PoolExhaustedError, TableRangeError
from runtime.kv.prefix_cache import PrefixCache, PrefixMatch, TailMatch
from runtime.kv.prefix_node import PrefixNode


@dataclass(frozen=True, slots=True)
class CopyBlock:
    """Copy the first `tokens` slots of `source` to `target`, all layers, before the step writes anything."""

    source: int
    target: int
    tokens: int


class CopyList:
    """Copies that the engine has yet to make; each source is pinned, so that nobody reuses it meanwhile.

    Make them in the order of `waiting`. A table that appends once a step never makes a copy's target another
    copy's source, so that one gather and one scatter are then as good.
    """

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self._waiting: list[CopyBlock] = []

    def add(self, copy: CopyBlock, holder: int) -> None:
        """Remembers `copy` and pins its source."""
        self._pool.pin(copy.source)
        self._waiting.append(copy)
        self._pool.observer.block_copied(holder, copy.source, copy.target, copy.tokens)

    def waiting(self) -> tuple[CopyBlock, ...]:
        """What has been added since the last `settle`."""
        return tuple(self._waiting)

    def settle(self) -> None:
        """The engine made the copies, or dropped every table they were for: unpins the sources."""
        for copy in self._waiting:
            self._pool.unpin(copy.source)
        self._waiting.clear()


class BlockTable:
    """Blocks of sequence `holder`, in order; position p is slot p % block_tokens of block p // block_tokens.

    It stores no tokens: whoever publishes passes the history. Every method that may run out of blocks raises
    PoolExhaustedError and then has changed nothing.
    """

    def __init__(self, cache: PrefixCache, copies: CopyList, holder: int) -> None:
        self._cache = cache
        self._pool = cache.pool
        self._copies = copies
        self.holder = holder
        self.blocks: list[int] = []
        self.length_tokens = 0
        self._chain: list[PrefixNode] = []
        self._chain_broken = False

    @property
    def last_node(self) -> PrefixNode:
        """The cached node of the last published full block, or the cache's root."""
        return self._chain[-1] if self._chain else self._cache.root

    @property
    def published_blocks(self) -> int:
        """Leading blocks whose content the cache knows."""
        return len(self._chain)

    def join(self, match: PrefixMatch) -> None:
        """Starts this empty table with what `match` found. TableRangeError on a table that has tokens."""
        if self.length_tokens:
            raise TableRangeError(0, self.length_tokens)
        self._pool.share(match.blocks, self.holder)
        self.blocks = list(match.blocks)
        if match.tail:
            try:
                self.blocks.append(self._join_tail(match.tail))
            except PoolExhaustedError:
                self._pool.release(self.blocks[::-1], self.holder)
                self.blocks = []
                raise
        self._chain = list(match.nodes)
        self.length_tokens = match.matched_tokens

    def blocks_needed(self, tokens: int) -> int:
        """Blocks that `append(tokens)` would allocate, a copy on write included."""
        if tokens == 0:
            return 0
        fresh = self._pool.blocks_for(self.length_tokens + tokens) - len(self.blocks)
        return fresh + self._must_copy()

    def appendable(self, tokens: int, spare_blocks: int) -> int:
        """The most of `tokens` that `append` could take with `spare_blocks` allocations."""
        room = len(self.blocks) * self._pool.block_tokens - self.length_tokens
        if self._must_copy():
            spare_blocks -= 1
        if spare_blocks < 0:
            return 0
        return min(tokens, room + spare_blocks * self._pool.block_tokens)

    def append(self, tokens: int) -> list[int]:
        """Makes room for `tokens` more and returns their slots as block * block_tokens + slot.

        A last block that others hold or that is published there is replaced by a copy.
        """
        copying = self._must_copy() and tokens > 0
        fresh = self._pool.allocate(self.blocks_needed(tokens), self.holder)
        size = self._pool.block_tokens
        if copying:
            source, target = self.blocks[-1], fresh.pop(0)
            self._copies.add(CopyBlock(source, target, self.length_tokens % size), self.holder)
            self._pool.release([source], self.holder)
            self.blocks[-1] = target
        self.blocks += fresh
        start = self.length_tokens
        self.length_tokens += tokens
        return self.slots(start, self.length_tokens)

    def slots(self, start: int, stop: int) -> list[int]:
        """Slots of positions [start, stop) as block * block_tokens + slot; else TableRangeError."""
        if not 0 <= start <= stop <= self.length_tokens:
            raise TableRangeError(stop, self.length_tokens)
        size = self._pool.block_tokens
        return [self.blocks[position // size] * size + position % size for position in range(start, stop)]

    def fork(self, holder: int) -> "BlockTable":
        """A table for `holder` over the same blocks, the unfilled last one too: who writes first copies."""
        other = BlockTable(self._cache, self._copies, holder)
        self._pool.share(self.blocks, holder)
        other.blocks = list(self.blocks)
        other.length_tokens = self.length_tokens
        other._chain = list(self._chain)
        other._chain_broken = self._chain_broken
        return other

    def truncate(self, tokens: int) -> None:
        """Keeps the first `tokens`. TableRangeError when there are fewer."""
        if not 0 <= tokens <= self.length_tokens:
            raise TableRangeError(tokens, self.length_tokens)
        kept = self._pool.blocks_for(tokens)
        dropped = self.blocks[kept:]
        del self.blocks[kept:]
        del self._chain[tokens // self._pool.block_tokens :]
        self.length_tokens = tokens
        self._pool.release(dropped[::-1], self.holder)

    def publish(self, tokens: Sequence[int]) -> None:
        """Offers every full block of the computed history `tokens` to the cache.

        Where the same content is cached already, that block is shared and ours given back.
        TableRangeError for tokens without a slot.
        """
        if len(tokens) > self.length_tokens:
            raise TableRangeError(len(tokens), self.length_tokens)
        size = self._pool.block_tokens
        for index in range(len(self._chain), len(tokens) // size):
            if self._chain_broken:
                return
            block = self.blocks[index]
            node = self._cache.publish(self.last_node, block, tokens[index * size : (index + 1) * size])
            if node is None:
                self._chain_broken = True
                return
            if node.block != block:
                self._pool.share([node.block], self.holder)
                self._pool.release([block], self.holder)
                self.blocks[index] = node.block
            self._chain.append(node)

    def publish_tail(self, tokens: Sequence[int]) -> None:
        """`publish`, and the computed part of the unfilled last block; writing behind it stays allowed."""
        self.publish(tokens)
        size = self._pool.block_tokens
        full = len(tokens) // size
        if len(tokens) % size and len(self._chain) == full:
            self._cache.publish_tail(self.last_node, self.blocks[full], tokens[full * size :])

    def release(self) -> None:
        """Gives every block back, tail first; the table is then empty and may join again."""
        self._pool.release(self.blocks[::-1], self.holder)
        self.blocks = []
        self._chain = []
        self._chain_broken = False
        self.length_tokens = 0

    def discard(self) -> None:
        """`release`, and the cache forgets what only this table holds: its content may be wrong."""
        for block in reversed(self.blocks):
            if self._pool.ref_count(block) == 1:
                self._cache.forget(block)
        self.release()

    def _must_copy(self) -> bool:
        slot = self.length_tokens % self._pool.block_tokens
        return slot > 0 and not self._pool.is_writable(self.blocks[-1], slot)

    def _join_tail(self, tail: TailMatch) -> int:
        """The block that continues the match: the source itself when nobody uses it, else a copy."""
        pool = self._pool
        if is_takeover(pool, tail):
            pool.share([tail.source], self.holder)
            return tail.source
        pool.pin(tail.source)  # or the allocation could evict it
        try:
            (target,) = pool.allocate(1, self.holder)
            self._copies.add(CopyBlock(tail.source, target, tail.tokens), self.holder)
        finally:
            pool.unpin(tail.source)
        return target


def is_takeover(pool: BlockPool, tail: TailMatch) -> bool:
    """True when the tail's block is idle and holds no more than what matched: it can be continued."""
    return pool.ref_count(tail.source) == 0 and pool.published_tokens(tail.source) == tail.tokens
