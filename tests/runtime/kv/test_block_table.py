"""Block tables: copy on write, forks, truncation, and refusals that change nothing."""

import pytest

from runtime.kv.block_pool import BlockPool
from runtime.kv.block_table import BlockTable, CopyBlock, CopyList
from runtime.kv.errors import PoolExhaustedError, TableRangeError
from runtime.kv.observer import Fact, RecordingObserver
from runtime.kv.prefix_cache import PrefixCache


class Store:
    """A pool of blocks of four tokens, and what belongs to it."""

    def __init__(self, capacity: int = 8) -> None:
        self.observer = RecordingObserver()
        self.pool = BlockPool(capacity, 4, self.observer)
        self.cache = PrefixCache(self.pool)
        self.copies = CopyList(self.pool)

    def table(self, holder: int = 0, tokens: int = 0) -> BlockTable:
        table = BlockTable(self.cache, self.copies, holder)
        table.append(tokens)
        return table


def test_appending_allocates_on_need_and_names_the_slots() -> None:
    table = Store().table()
    assert table.append(3) == [0, 1, 2]
    assert table.append(2) == [3, 4]
    assert table.blocks == [0, 1]


def test_an_append_that_does_not_fit_changes_nothing() -> None:
    store = Store(capacity=2)
    table = store.table(tokens=3)
    with pytest.raises(PoolExhaustedError):
        table.append(6)
    assert (table.blocks, table.length_tokens, store.pool.available) == ([0], 3, 1)


def test_whoever_writes_first_after_a_fork_copies_and_the_other_writes_in_place() -> None:
    store = Store()
    parent = store.table(tokens=6)
    child = parent.fork(1)
    child.append(1)
    assert store.copies.waiting() == (CopyBlock(source=1, target=2, tokens=2),)
    assert child.blocks == [0, 2]
    store.copies.settle()
    parent.append(1)
    assert store.copies.waiting() == ()
    assert parent.blocks == [0, 1]


def test_a_fork_at_a_block_boundary_copies_nothing() -> None:
    store = Store()
    parent = store.table(tokens=4)
    parent.fork(1).append(1)
    assert store.copies.waiting() == ()


def test_writing_behind_a_published_tail_needs_no_copy_and_writing_into_it_does() -> None:
    store = Store()
    table = store.table(tokens=3)
    table.publish_tail([7, 8, 9])
    assert table.append(1) == [3]
    assert store.copies.waiting() == ()
    table.truncate(2)
    assert table.append(1) == [6]
    assert store.copies.waiting() == (CopyBlock(source=0, target=1, tokens=2),)


def test_a_copys_source_cannot_be_reused_before_the_copy_is_made() -> None:
    store = Store(capacity=2)
    table = store.table(tokens=3)
    table.publish_tail([7, 8, 9])
    table.truncate(2)
    table.append(1)
    with pytest.raises(PoolExhaustedError):
        store.pool.allocate(1)
    store.copies.settle()
    assert store.pool.allocate(1) == [0]


def test_an_idle_tail_that_matches_whole_is_continued_in_place() -> None:
    store = Store()
    first = store.table(tokens=6)
    first.publish_tail(range(6))
    first.release()
    second = BlockTable(store.cache, store.copies, 1)
    second.join(store.cache.match([*range(6), 9, 9]))
    assert (second.blocks, second.length_tokens) == ([0, 1], 6)
    assert store.copies.waiting() == ()
    assert second.append(2) == [6, 7]


def test_a_tail_that_another_holds_or_that_matches_in_part_is_copied() -> None:
    store = Store()
    first = store.table(tokens=6)
    first.publish_tail(range(6))
    second = BlockTable(store.cache, store.copies, 1)
    second.join(store.cache.match([*range(6), 9]))
    first.release()
    third = BlockTable(store.cache, store.copies, 2)
    third.join(store.cache.match([0, 1, 2, 3, 4, 9]))
    assert store.copies.waiting() == (CopyBlock(1, 2, 2), CopyBlock(1, 3, 1))


def test_an_idle_tail_that_matches_in_part_is_copied_and_stays_cached() -> None:
    store = Store()
    first = store.table(tokens=7)
    first.publish_tail(range(7))
    first.release()
    second = BlockTable(store.cache, store.copies, 1)
    second.join(store.cache.match([0, 1, 2, 3, 4, 5, 9]))
    assert store.copies.waiting() == (CopyBlock(source=1, target=2, tokens=2),)
    assert store.cache.match([*range(7), 9]).matched_tokens == 7


def test_a_join_that_cannot_copy_its_tail_changes_nothing() -> None:
    store = Store(capacity=2)
    first = store.table(tokens=6)
    first.publish_tail(range(6))
    second = BlockTable(store.cache, store.copies, 1)
    match = store.cache.match([*range(6), 9])
    with pytest.raises(PoolExhaustedError):
        second.join(match)
    assert (second.blocks, store.copies.waiting()) == ([], ())
    assert [store.pool.ref_count(block) for block in (0, 1)] == [1, 1]
    second.join(match.without_tail())
    assert second.length_tokens == 4


def test_truncation_gives_back_whole_blocks_and_unpublishes_nothing() -> None:
    store = Store()
    table = store.table(tokens=10)
    table.publish(range(10))
    table.truncate(5)
    assert (table.blocks, table.length_tokens, table.published_blocks) == ([0, 1], 5, 1)
    assert store.cache.match([*range(8), 9]).matched_tokens == 8


def test_content_after_a_truncation_is_published_under_its_own_history() -> None:
    store = Store()
    table = store.table(tokens=8)
    table.publish(range(8))
    table.truncate(6)
    table.append(2)
    store.copies.settle()
    table.publish([0, 1, 2, 3, 4, 5, 70, 71])
    assert store.cache.match([0, 1, 2, 3, 4, 5, 70, 71, 9]).matched_tokens == 8
    assert store.cache.match([*range(8), 9]).matched_tokens == 8


def test_what_only_a_discarded_table_held_is_not_found_again() -> None:
    store = Store()
    shared, own = store.table(tokens=4), store.table(holder=1)
    shared.publish(range(4))
    own.join(store.cache.match(range(10)))
    own.append(6)
    own.publish_tail(range(10))
    own.discard()
    assert store.cache.match([*range(10), 99]).matched_tokens == 4
    assert store.pool.counts().referenced == 1


@pytest.mark.parametrize("tokens", [-1, 4])
def test_a_truncation_beyond_the_table_is_refused(tokens: int) -> None:
    with pytest.raises(TableRangeError):
        Store().table(tokens=3).truncate(tokens)


def test_publishing_tokens_without_a_slot_is_refused() -> None:
    with pytest.raises(TableRangeError):
        Store().table(tokens=3).publish(range(4))


def test_a_table_with_tokens_cannot_join() -> None:
    store = Store()
    table = store.table(tokens=1)
    with pytest.raises(TableRangeError):
        table.join(store.cache.match([1, 2]))


@pytest.mark.parametrize("wanted", range(12))
@pytest.mark.parametrize("spare", range(4))
@pytest.mark.parametrize("forked", [False, True])
def test_what_is_appendable_is_exactly_what_append_takes(wanted: int, spare: int, forked: bool) -> None:
    store = Store()
    table = store.table(tokens=6)
    if forked:
        table.fork(1)
    most = table.appendable(wanted, spare)
    assert most <= wanted
    assert table.blocks_needed(most) <= spare
    assert most == wanted or table.blocks_needed(most + 1) > spare


def test_the_facts_name_the_holder() -> None:
    store = Store()
    parent = store.table(holder=5, tokens=2)
    parent.fork(6).append(1)
    assert store.observer.facts[:3] == [
        Fact("blocks_allocated", 5, (0,)),
        Fact("blocks_shared", 6, (0,)),
        Fact("blocks_allocated", 6, (1,)),
    ]
    assert Fact("block_copied", 6, (0, 1), (2,)) in store.observer.facts
