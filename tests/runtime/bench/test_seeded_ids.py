"""Token ids from a seed: equal for equal seeds and texts, within the vocabulary, of exactly the budget."""

import pytest

from contract.workload import Segment
from runtime.bench.seeded_ids import seeded_prompts

SEGMENTS = [
    Segment(segment_id="shared", text="the handbook", tokens=2000),
    Segment(segment_id="one", text="task one", tokens=60),
    Segment(segment_id="two", text="task two", tokens=60),
    Segment(segment_id="free", text="four words of text"),
]


def test_the_same_seed_gives_the_same_ids_and_another_gives_others() -> None:
    first, again, other = (seeded_prompts(SEGMENTS, seed, 49_152) for seed in (7, 7, 8))
    for segment in SEGMENTS:
        assert first.segment(segment.segment_id) == again.segment(segment.segment_id)
    assert first.segment("shared") != other.segment("shared")
    assert first.segment("one") != first.segment("two")


@pytest.mark.parametrize("vocab_size", [2, 260, 49_152])
def test_ids_lie_within_the_vocabulary_and_fill_the_budget(vocab_size: int) -> None:
    book = seeded_prompts(SEGMENTS, 0, vocab_size)
    assert [len(book.segment(each.segment_id)) for each in SEGMENTS] == [2000, 60, 60, 4]
    ids = set(book.segment("shared"))
    assert min(ids) >= vocab_size // 8
    assert max(ids) < max(vocab_size - vocab_size // 8, 1)


def test_ids_do_not_depend_on_the_process() -> None:
    """Peers are given a file of them: Python's own hashes, which change with each process, would not do."""
    assert seeded_prompts(SEGMENTS, 0, 49_152).segment("one")[:4] == FIRST_IDS


FIRST_IDS = (28593, 22015, 33841, 26600)
