"""The pool of fixed-size blocks: who is free, who is held, who is cached with no user.

A block is in exactly one of three places:
  free        nobody holds it, nothing is cached in it;
  idle        nobody holds it, its content is published, evictable, least recently used first;
  referenced  count > 0: tables that hold it, plus pins.
Every operation costs O(1) per block named.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from runtime.kv.errors import BlockNotHeldError, NullBlockError, PoolExhaustedError, PublishRefusedError
from runtime.kv.observer import NO_HOLDER, KVObserver, NullObserver

NULL_BLOCK = -1
"""Pads rectangular block tables; never allocated, and refused wherever a block is expected."""


@dataclass(frozen=True, slots=True)
class PoolCounts:
    """Blocks by place; `free + idle + referenced == capacity` always. `pinned` are among the referenced."""

    capacity: int
    free: int
    idle: int
    referenced: int
    pinned: int
    peak_referenced: int
    allocations: int
    shares: int
    evictions: int


class BlockPool:
    """`capacity` blocks of `block_tokens` slots, ids 0..capacity-1. ValueError for sizes below 1."""

    def __init__(self, capacity: int, block_tokens: int, observer: KVObserver | None = None) -> None:
        if capacity < 1 or block_tokens < 1:
            raise ValueError(f"a pool needs blocks and slots, not {capacity} of {block_tokens} tokens")
        self.block_tokens = block_tokens
        self.observer: KVObserver = observer or NullObserver()
        self._free = list(range(capacity - 1, -1, -1))
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._ref_count = [0] * capacity
        self._pins = [0] * capacity
        self._published_tokens = [0] * capacity
        self._on_evict: Callable[[int], None] = self.unpublish
        self._pinned = self._peak_referenced = self._allocations = self._shares = self._evictions = 0

    @property
    def capacity(self) -> int:
        """Blocks in all."""
        return len(self._ref_count)

    @property
    def available(self) -> int:
        """Blocks that `allocate` could hand out now: free and idle."""
        return len(self._free) + len(self._idle)

    @property
    def pinned_blocks(self) -> int:
        """Blocks with at least one pin."""
        return self._pinned

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold `tokens` tokens of one sequence."""
        return -(-tokens // self.block_tokens)

    def counts(self) -> PoolCounts:
        """The accounting at this moment."""
        return PoolCounts(
            capacity=self.capacity,
            free=len(self._free),
            idle=len(self._idle),
            referenced=self.capacity - self.available,
            pinned=self._pinned,
            peak_referenced=self._peak_referenced,
            allocations=self._allocations,
            shares=self._shares,
            evictions=self._evictions,
        )

    def on_evict(self, callback: Callable[[int], None]) -> None:
        """`callback(block)` hears of each eviction before the block is handed out again."""
        self._on_evict = callback

    def ref_count(self, block: int) -> int:
        """Tables that hold `block`, plus its pins. NullBlockError for no block of this pool."""
        self._check(block)
        return self._ref_count[block]

    def published_tokens(self, block: int) -> int:
        """Leading slots whose content is cached and must not be written; 0 when unpublished."""
        self._check(block)
        return self._published_tokens[block]

    def is_writable(self, block: int, slot: int) -> bool:
        """True when exactly one reference holds `block` and `slot` lies behind its published content."""
        return self.ref_count(block) == 1 and slot >= self._published_tokens[block]

    def allocate(self, count: int, holder: int = NO_HOLDER) -> list[int]:
        """`count` blocks with reference count 1, or PoolExhaustedError and nothing taken.

        Free blocks go first; then idle ones are evicted, least recently used first.
        """
        if count > self.available:
            raise PoolExhaustedError(count, self.available)
        blocks = [self._take() for _ in range(count)]
        self._allocations += count
        self._note_peak()
        if blocks:
            self.observer.blocks_allocated(holder, blocks)
        return blocks

    def share(self, blocks: Sequence[int], holder: int = NO_HOLDER) -> None:
        """One more reference for each. BlockNotHeldError for a block that is neither held nor idle.

        Checked before anything changes.
        """
        for block in blocks:
            self._check(block)
            if not self._ref_count[block] and block not in self._idle:
                raise BlockNotHeldError("share", block)
        for block in blocks:
            self._reference(block)
        self._shares += len(blocks)
        if blocks:
            self.observer.blocks_shared(holder, blocks)

    def release(self, blocks: Sequence[int], holder: int = NO_HOLDER) -> None:
        """One reference less for each, in the order given: tail blocks first, to have them evicted first.

        At zero a published block becomes idle and any other free. BlockNotHeldError (a double free) and
        NullBlockError are raised before anything changes.
        """
        asked: dict[int, int] = {}
        for block in blocks:
            self._check(block)
            asked[block] = asked.get(block, 0) + 1
            if self._ref_count[block] - self._pins[block] < asked[block]:
                raise BlockNotHeldError("release", block)
        if not blocks:
            return
        self.observer.blocks_released(holder, blocks)
        freed = [block for block in blocks if self._dereference(block)]
        if freed:
            self.observer.blocks_freed(freed)

    def pin(self, block: int) -> None:
        """A reference with no table behind it: the block cannot be evicted until `unpin`."""
        self._check(block)
        if not self._ref_count[block] and block not in self._idle:
            raise BlockNotHeldError("pin", block)
        self._reference(block)
        self._pinned += self._pins[block] == 0
        self._pins[block] += 1
        self.observer.block_pinned(block)

    def unpin(self, block: int) -> None:
        """Takes one pin back. BlockNotHeldError when there is none."""
        self._check(block)
        if not self._pins[block]:
            raise BlockNotHeldError("unpin", block)
        self._pins[block] -= 1
        self._pinned -= self._pins[block] == 0
        self.observer.block_unpinned(block)
        if self._dereference(block):
            self.observer.blocks_freed([block])

    def publish(self, block: int, tokens: int) -> None:
        """Marks the first `tokens` slots as cached; the block goes idle, not free, at reference count 0.

        PublishRefusedError for a block nobody holds, for more tokens than slots and for fewer than before.
        """
        self._check(block)
        if not self._ref_count[block]:
            raise PublishRefusedError(block, tokens, "nobody holds it")
        if not max(1, self._published_tokens[block]) <= tokens <= self.block_tokens:
            held = self._published_tokens[block]
            raise PublishRefusedError(block, tokens, f"{held} published of {self.block_tokens} slots")
        self._published_tokens[block] = tokens
        self.observer.block_published(block, tokens)

    def unpublish(self, block: int) -> None:
        """Forgets cached content; an idle block becomes free. No effect on an unpublished block."""
        self._check(block)
        if not self._published_tokens[block]:
            return
        self._published_tokens[block] = 0
        self.observer.block_unpublished(block)
        if block in self._idle:
            del self._idle[block]
            self._free.append(block)
            self.observer.blocks_freed([block])

    def _check(self, block: int) -> None:
        if not 0 <= block < self.capacity:
            raise NullBlockError(block, self.capacity)

    def _take(self) -> int:
        if self._free:
            block = self._free.pop()
        else:
            block, _ = self._idle.popitem(last=False)
            self._evictions += 1
            self.observer.block_evicted(block)
            self._on_evict(block)
            self.unpublish(block)
        self._ref_count[block] = 1
        return block

    def _reference(self, block: int) -> None:
        if not self._ref_count[block]:
            del self._idle[block]
        self._ref_count[block] += 1
        self._note_peak()

    def _dereference(self, block: int) -> bool:
        """True when the block went to the free list."""
        self._ref_count[block] -= 1
        if self._ref_count[block]:
            return False
        if self._published_tokens[block]:
            self._idle[block] = None
            return False
        self._free.append(block)
        return True

    def _note_peak(self) -> None:
        self._peak_referenced = max(self._peak_referenced, self.capacity - self.available)
