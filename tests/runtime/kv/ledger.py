"""The pool's accounting rebuilt from the observer's facts alone."""

from collections import Counter

from runtime.kv.block_pool import BlockPool
from runtime.kv.observer import Fact, RecordingObserver


class Ledger:
    """Replays facts; a fact that the accounting does not allow is an AssertionError."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.held: Counter[tuple[int, int]] = Counter()
        self.refs: Counter[int] = Counter()
        self.pins: Counter[int] = Counter()
        self.published: dict[int, int] = {}
        self.free = set(range(capacity))
        self.evicting: set[int] = set()
        self.seen = 0

    def replay(self, observer: RecordingObserver) -> None:
        """Applies what was recorded since the last replay."""
        for fact in observer.facts[self.seen :]:
            getattr(self, fact.name)(fact)
        self.seen = len(observer.facts)

    def blocks_allocated(self, fact: Fact) -> None:
        for block in fact.blocks:
            assert block in self.free or block in self.evicting, f"{block} was allocated while in use"
            self.free.discard(block)
            self.evicting.discard(block)
            self.held[fact.holder, block] += 1
            self.refs[block] += 1

    def blocks_shared(self, fact: Fact) -> None:
        for block in fact.blocks:
            assert block not in self.free, f"{block} was shared while free"
            self.held[fact.holder, block] += 1
            self.refs[block] += 1

    def blocks_released(self, fact: Fact) -> None:
        for block in fact.blocks:
            assert self.held[fact.holder, block] > 0, (
                f"{fact.holder} released {block}, which it does not hold"
            )
            self.held[fact.holder, block] -= 1
            self.refs[block] -= 1

    def blocks_freed(self, fact: Fact) -> None:
        for block in fact.blocks:
            assert not self.refs[block], f"{block} was freed while held"
            assert block not in self.published, f"{block} was freed while cached"
            assert block not in self.free, f"{block} was freed twice"
            self.free.add(block)

    def block_pinned(self, fact: Fact) -> None:
        self.pins[fact.blocks[0]] += 1
        self.refs[fact.blocks[0]] += 1

    def block_unpinned(self, fact: Fact) -> None:
        self.pins[fact.blocks[0]] -= 1
        self.refs[fact.blocks[0]] -= 1

    def block_published(self, fact: Fact) -> None:
        self.published[fact.blocks[0]] = fact.tokens[0]

    def block_unpublished(self, fact: Fact) -> None:
        del self.published[fact.blocks[0]]

    def block_evicted(self, fact: Fact) -> None:
        (block,) = fact.blocks
        assert not self.refs[block], f"{block} was evicted while held"
        assert block in self.published, f"{block} was evicted without being cached"
        self.evicting.add(block)

    def block_copied(self, fact: Fact) -> None:
        source, target = fact.blocks
        assert self.refs[source], "a copy's source must be held until the copy is made"
        assert self.held[fact.holder, target], "a copy's target must be the copier's"

    def prefix_hit(self, fact: Fact) -> None:
        queried, hit, tail = fact.tokens
        assert 0 <= tail <= hit < queried

    def agree_with(self, pool: BlockPool) -> None:
        """Asserts that the pool says the same of every block, and that its counts follow."""
        idle = {block for block in self.published if not self.refs[block]}
        counts = pool.counts()
        assert (counts.free, counts.idle) == (len(self.free), len(idle))
        assert counts.referenced == sum(count > 0 for count in self.refs.values())
        assert counts.free + counts.idle + counts.referenced == counts.capacity == pool.capacity
        assert counts.pinned == sum(count > 0 for count in self.pins.values())
        assert not self.evicting
        for block in range(pool.capacity):
            assert pool.ref_count(block) == self.refs[block]
            assert pool.published_tokens(block) == self.published.get(block, 0)

    def blocks_of(self, holder: int) -> list[int]:
        """Blocks that `holder` holds, sorted, once per reference."""
        return sorted(
            block for (who, block), count in self.held.items() if who == holder for _ in range(count)
        )
