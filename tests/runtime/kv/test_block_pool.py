"""The pool: refusals one by one, and its accounting under any interleaving."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from runtime.kv.block_pool import NULL_BLOCK, BlockPool
from runtime.kv.errors import BlockNotHeldError, NullBlockError, PoolExhaustedError, PublishRefusedError
from runtime.kv.observer import RecordingObserver
from tests.runtime.kv.ledger import Ledger


def test_an_exhausted_pool_refuses_and_takes_nothing() -> None:
    pool = BlockPool(3, 4)
    pool.allocate(1)
    with pytest.raises(PoolExhaustedError) as refused:
        pool.allocate(3)
    assert (refused.value.needed_blocks, refused.value.available_blocks) == (3, 2)
    assert pool.counts().free == 2


def test_a_second_release_is_an_error_and_changes_nothing() -> None:
    pool = BlockPool(2, 4)
    first, second = pool.allocate(2)
    pool.release([first])
    with pytest.raises(BlockNotHeldError, match="release"):
        pool.release([second, first])
    assert pool.ref_count(second) == 1


def test_releasing_a_block_twice_in_one_call_is_a_double_free() -> None:
    pool = BlockPool(2, 4)
    (block,) = pool.allocate(1)
    with pytest.raises(BlockNotHeldError):
        pool.release([block, block])


def test_a_pin_cannot_be_released_as_if_a_table_held_it() -> None:
    pool = BlockPool(1, 4)
    (block,) = pool.allocate(1)
    pool.pin(block)
    pool.release([block])
    with pytest.raises(BlockNotHeldError, match="release"):
        pool.release([block])
    pool.unpin(block)
    assert pool.counts().free == 1


@pytest.mark.parametrize("block", [NULL_BLOCK, -7, 2, 99])
@pytest.mark.parametrize("action", ["share", "release", "pin", "unpin", "publish", "unpublish", "ref_count"])
def test_no_block_of_the_pool_is_refused_everywhere(block: int, action: str) -> None:
    pool = BlockPool(2, 4)
    calls = {
        "share": lambda: pool.share([block]),
        "release": lambda: pool.release([block]),
        "publish": lambda: pool.publish(block, 1),
    }
    with pytest.raises(NullBlockError):
        calls.get(action, lambda: getattr(pool, action)(block))()


@pytest.mark.parametrize("action", ["share", "pin", "unpin", "publish"])
def test_a_free_block_can_be_neither_shared_nor_pinned_nor_published(action: str) -> None:
    pool = BlockPool(2, 4)
    calls = {
        "share": lambda: pool.share([1]),
        "pin": lambda: pool.pin(1),
        "unpin": lambda: pool.unpin(1),
        "publish": lambda: pool.publish(1, 1),
    }
    with pytest.raises((BlockNotHeldError, PublishRefusedError)):
        calls[action]()


@pytest.mark.parametrize("tokens", [0, 1, 5])
def test_published_content_neither_shrinks_nor_exceeds_the_block(tokens: int) -> None:
    pool = BlockPool(1, 4)
    (block,) = pool.allocate(1)
    pool.publish(block, 2)
    with pytest.raises(PublishRefusedError):
        pool.publish(block, tokens)


def test_idle_blocks_are_evicted_least_recently_released_first_and_tails_before_heads() -> None:
    pool = BlockPool(4, 4)
    blocks = pool.allocate(4)
    for block in blocks:
        pool.publish(block, 4)
    pool.release(blocks[:1])
    pool.release(blocks[:0:-1])
    pool.share(blocks[:1])
    pool.release(blocks[:1])
    assert pool.allocate(4) == [blocks[3], blocks[2], blocks[1], blocks[0]]


def test_free_blocks_go_before_cached_ones() -> None:
    pool = BlockPool(2, 4)
    cached, spare = pool.allocate(2)
    pool.publish(cached, 4)
    pool.release([cached, spare])
    assert pool.allocate(1) == [spare]
    assert pool.counts().evictions == 0


def test_a_pinned_block_is_not_evicted() -> None:
    pool = BlockPool(2, 4)
    (block,) = pool.allocate(1)
    pool.publish(block, 4)
    pool.pin(block)
    pool.release([block])
    with pytest.raises(PoolExhaustedError):
        pool.allocate(2)


def test_published_slots_are_not_writable_and_those_behind_are() -> None:
    pool = BlockPool(1, 4)
    (block,) = pool.allocate(1)
    pool.publish(block, 2)
    assert [pool.is_writable(block, slot) for slot in range(4)] == [False, False, True, True]
    pool.share([block])
    assert not pool.is_writable(block, 3)


@pytest.mark.parametrize(("capacity", "block_tokens"), [(0, 4), (4, 0)])
def test_a_pool_of_nothing_is_refused(capacity: int, block_tokens: int) -> None:
    with pytest.raises(ValueError, match="needs blocks"):
        BlockPool(capacity, block_tokens)


class PoolAgainstACounter(RuleBasedStateMachine):
    """One owner entry per reference; the pool must count the same, and its facts must rebuild it."""

    owned = Bundle("owned")
    pinned = Bundle("pinned")

    @initialize(capacity=st.integers(1, 6))
    def start(self, capacity: int) -> None:
        self.observer = RecordingObserver()
        self.pool = BlockPool(capacity, 4, self.observer)
        self.ledger = Ledger(capacity)
        self.owners: Counter[int] = Counter()
        self.published: set[int] = set()

    def _evicted(self) -> set[int]:
        return {block for block in self.published if not self.pool.published_tokens(block)}

    @rule(target=owned, count=st.integers(1, 4))
    def allocate(self, count: int) -> object:
        in_use = {block for block, owners in self.owners.items() if owners}
        free = self.pool.capacity - len(in_use)
        if count > free:
            with pytest.raises(PoolExhaustedError):
                self.pool.allocate(count)
            return None
        blocks = self.pool.allocate(count)
        assert len(set(blocks)) == count
        assert not in_use & set(blocks), "a held block was handed out again"
        self.owners.update(blocks)
        self.published -= self._evicted()
        return tuple(blocks)

    @rule(target=owned, blocks=owned)
    def share(self, blocks: tuple[int, ...] | None) -> object:
        if blocks is None or any(not self.owners[block] for block in blocks):
            return None
        self.pool.share(blocks)
        self.owners.update(blocks)
        return blocks

    @rule(blocks=consumes(owned))
    def release(self, blocks: tuple[int, ...] | None) -> None:
        if blocks is None:
            return
        self.pool.release(blocks)
        self.owners.subtract(blocks)
        self.published -= self._evicted()

    @rule(target=pinned, blocks=owned)
    def pin(self, blocks: tuple[int, ...] | None) -> object:
        if blocks is None or not self.owners[blocks[0]]:
            return None
        self.pool.pin(blocks[0])
        self.owners[blocks[0]] += 1
        return blocks[0]

    @rule(block=consumes(pinned))
    def unpin(self, block: int | None) -> None:
        if block is not None:
            self.pool.unpin(block)
            self.owners[block] -= 1

    @rule(blocks=owned, tokens=st.integers(1, 4))
    def publish(self, blocks: tuple[int, ...] | None, tokens: int) -> None:
        if blocks is None or not self.owners[blocks[0]]:
            return
        if tokens >= self.pool.published_tokens(blocks[0]):
            self.pool.publish(blocks[0], tokens)
            self.published.add(blocks[0])

    @rule(block=st.integers(0, 5))
    def unpublish(self, block: int) -> None:
        if block < self.pool.capacity:
            self.pool.unpublish(block)
            self.published.discard(block)

    @invariant()
    def counts_agree(self) -> None:
        pool = self.pool
        assert all(pool.ref_count(block) == self.owners[block] for block in range(pool.capacity))
        counts = pool.counts()
        assert counts.free + counts.idle + counts.referenced == counts.capacity
        assert counts.idle == sum(not self.owners[block] for block in self.published)

    @invariant()
    def facts_rebuild_the_pool(self) -> None:
        self.ledger.replay(self.observer)
        self.ledger.agree_with(self.pool)


TestPoolAgainstACounter = PoolAgainstACounter.TestCase
TestPoolAgainstACounter.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
