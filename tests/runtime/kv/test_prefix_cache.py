"""The prefix cache: what is found, to the token; who waits for whom; what a collision does."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.kv.block_pool import BlockPool
from runtime.kv.block_table import BlockTable, CopyList
from runtime.kv.observer import RecordingObserver
from runtime.kv.prefix_cache import TAIL_CANDIDATES, PrefixCache
from runtime.kv.prefix_node import NodeState, hash_block, root_digest

BLOCK_TOKENS = 4


class Store:
    """A pool, a cache and tables that a test fills by hand."""

    def __init__(self, capacity: int = 16, salt: str = "") -> None:
        self.pool = BlockPool(capacity, BLOCK_TOKENS, RecordingObserver())
        self.cache = PrefixCache(self.pool, salt)
        self.copies = CopyList(self.pool)

    def compute(self, tokens: Sequence[int], holder: int = 0) -> BlockTable:
        """A table that joined what was cached and computed and published the rest."""
        table = BlockTable(self.cache, self.copies, holder)
        table.join(self.cache.match(tokens))
        table.append(len(tokens) - table.length_tokens)
        self.copies.settle()
        table.publish_tail(tokens)
        return table

    def matched(self, tokens: Sequence[int]) -> int:
        return self.cache.match(tokens).matched_tokens


@pytest.mark.parametrize(
    ("cached", "asked", "matched"),
    [
        pytest.param(range(8), [*range(8), 99], 8, id="two full blocks"),
        pytest.param(range(8), range(8), 7, id="one token is always left to compute"),
        pytest.param(range(6), [*range(6), 99], 6, id="a partial tail counts to the token"),
        pytest.param(
            range(8), [*range(6), 99, 98], 6, id="divergence inside a full block counts to the token"
        ),
        pytest.param(range(8), [99, *range(8)], 0, id="another first token shares nothing"),
        pytest.param(range(8), [0], 0, id="a single token is never taken from the cache"),
        pytest.param(range(3), range(3), 2, id="a tail equal to the prompt leaves one token"),
    ],
)
def test_the_longest_common_prefix_is_found_to_the_token(
    cached: Sequence[int], asked: Sequence[int], matched: int
) -> None:
    store = Store()
    store.compute(list(cached)).release()
    assert store.matched(list(asked)) == matched


def test_content_of_a_running_sequence_is_found_too() -> None:
    store = Store()
    table = store.compute(range(6))
    match = store.cache.match([*range(6), 99])
    assert match.blocks == (table.blocks[0],)
    assert match.tail is not None
    assert (match.tail.source, match.tail.tokens) == (table.blocks[1], 2)


def test_the_longest_of_several_tails_wins() -> None:
    store = Store()
    tables = [store.compute([0, 1, 2, 3, *tail]) for tail in ([4], [4, 5, 6], [4, 5])]
    match = store.cache.match([0, 1, 2, 3, 4, 5, 6, 7])
    assert match.tail is not None
    assert (match.tail.source, match.tail.tokens) == (tables[1].blocks[1], 3)


def test_a_match_compares_no_more_than_the_newest_candidates() -> None:
    store = Store(capacity=TAIL_CANDIDATES + 4)
    tables = [store.compute([0, 100 + number]) for number in range(TAIL_CANDIDATES + 1)]
    assert store.matched([0, 100, 7]) == 1
    assert store.matched([0, 101, 7]) == 2
    assert len(tables) > TAIL_CANDIDATES


def test_an_idle_shorter_tail_makes_room_for_the_longer_one() -> None:
    store = Store()
    store.compute([0, 1]).release()
    store.compute([0, 1, 2], holder=1).release()
    assert len(store.cache) == 1
    assert store.matched([0, 1, 2, 9]) == 3


def test_a_tail_that_is_cached_already_is_not_cached_twice() -> None:
    store = Store()
    kept = store.compute([0, 1, 2])
    other = BlockTable(store.cache, store.copies, 1)
    other.append(2)
    other.publish_tail([0, 1])
    other.release()
    assert len(store.cache) == 1
    assert store.matched([0, 1, 2, 9]) == 3
    kept.release()


def test_different_salts_share_nothing() -> None:
    assert root_digest("model-a fp16") != root_digest("model-b fp16")
    first, second = Store(salt="a"), Store(salt="b")
    first.compute(range(8)).release()
    second.compute(range(8)).release()
    digests = [{node.digest for node in store.cache.nodes()} for store in (first, second)]
    assert digests[0].isdisjoint(digests[1])


def test_the_hash_chain_is_the_published_one() -> None:
    root = root_digest("salt")
    assert root.hex()[:16] == "35b22aa2bd692454"
    assert hash_block(root, [1, 2]).hex()[:16] == "6f4129fb75653b7e"
    assert hash_block(root, [1, 2]) != hash_block(root, [2, 1])
    assert hash_block(hash_block(root, [1]), [2]) != hash_block(root, [1, 2])


def collide(_parent: bytes, _tokens: Sequence[int]) -> bytes:
    """Every content has the same digest."""
    return b"x"


def test_a_hash_collision_is_a_miss_and_never_another_content() -> None:
    store = Store()
    store.cache = PrefixCache(store.pool, block_hash=collide)
    store.compute([1, 2, 3, 4]).release()
    store.compute([5, 6, 7, 8, 9], holder=1).release()
    assert store.matched([1, 2, 3, 4, 9]) == 4
    assert store.matched([5, 6, 7, 8, 9]) == 0


@settings(max_examples=60)
@given(
    prompts=st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=14), min_size=1, max_size=6),
    digest_bytes=st.integers(1, 3),
)
def test_what_is_found_is_what_was_computed_even_with_a_bad_hash(
    prompts: list[list[int]], digest_bytes: int
) -> None:
    store = Store(capacity=64)

    def weak(parent: bytes, tokens: Sequence[int]) -> bytes:
        few = 3 if digest_bytes == 1 else 256
        return bytes([hash_block(parent, tokens)[0] % few]) * digest_bytes

    store.cache = PrefixCache(store.pool, block_hash=weak)
    content: dict[tuple[int, int], tuple[int, ...]] = {}
    for holder, prompt in enumerate(prompts):
        match = store.cache.match(prompt)
        held = [(block, BLOCK_TOKENS) for block in match.blocks]
        held += [(match.tail.source, match.tail.tokens)] if match.tail else []
        for index, (block, tokens) in enumerate(held):
            for slot in range(tokens):
                assert content[block, slot] == tuple(prompt[: index * BLOCK_TOKENS + slot + 1])
        table = store.compute(prompt, holder)
        for position in range(match.matched_tokens, len(prompt)):
            slot = (table.blocks[position // BLOCK_TOKENS], position % BLOCK_TOKENS)
            content[slot] = tuple(prompt[: position + 1])
        for slot in range(match.tail.tokens if match.tail else 0):
            block = len(match.blocks)
            content[table.blocks[block], slot] = tuple(prompt[: block * BLOCK_TOKENS + slot + 1])


def test_eviction_forgets_the_content_and_what_followed_it() -> None:
    store = Store(capacity=3)
    table = store.compute(range(12))
    head = table.blocks[0]
    table.release()
    store.pool.share([head])
    store.pool.release([head])
    for _ in range(3):
        store.pool.allocate(1)
    assert len(store.cache) == 0
    assert store.matched([*range(12), 99]) == 0


def test_forgetting_a_parent_frees_its_unreachable_children() -> None:
    store = Store()
    table = store.compute(range(10))
    head = table.blocks[0]
    table.release()
    assert store.pool.counts().idle == 3
    store.cache.forget(head)
    assert (store.pool.counts().idle, store.pool.counts().free) == (0, 16)


def test_a_follower_is_told_of_the_pending_prefix_and_finds_it_when_it_is_ready() -> None:
    store = Store()
    shared = list(range(10))
    leader = BlockTable(store.cache, store.copies, 0)
    store.cache.reserve(0, leader.last_node, [*shared, 50, 51])
    match = store.cache.match([*shared, 60, 61])
    assert match.matched_tokens == 0
    assert match.pending is not None
    assert (match.pending_tokens, match.pending.leader, match.pending.state) == (10, 0, NodeState.PENDING)
    leader.append(12)
    leader.publish([*shared, 50, 51])
    assert match.pending.state is NodeState.READY
    assert store.matched([*shared, 60, 61]) == 10


def test_an_unfilled_last_block_of_the_leader_is_waited_for_too() -> None:
    store = Store()
    leader = BlockTable(store.cache, store.copies, 0)
    store.cache.reserve(0, leader.last_node, range(6))
    match = store.cache.match([*range(6), 60])
    assert match.pending_tokens == 6
    leader.append(6)
    leader.publish_tail(range(6))
    assert match.pending is not None
    assert match.pending.state is NodeState.READY
    assert store.matched([*range(6), 60]) == 6


def test_a_leader_that_gives_up_leaves_what_it_finished_and_drops_the_rest() -> None:
    store = Store()
    leader = BlockTable(store.cache, store.copies, 0)
    store.cache.reserve(0, leader.last_node, range(10))
    pending = store.cache.match([*range(10), 99]).pending
    leader.append(4)
    leader.publish(range(4))
    store.cache.abandon(0)
    assert pending is not None
    assert pending.state is NodeState.DROPPED
    match = store.cache.match([*range(10), 99])
    assert (match.matched_tokens, match.pending) == (4, None)


def test_content_that_two_computed_is_kept_once() -> None:
    store = Store()
    tables = [BlockTable(store.cache, store.copies, holder) for holder in (0, 1)]
    for table in tables:
        table.append(9)
    for table in tables:
        table.publish(range(9))
    assert tables[0].blocks[:2] == tables[1].blocks[:2]
    assert tables[0].blocks[2] != tables[1].blocks[2]
    assert store.pool.counts().referenced == 4
