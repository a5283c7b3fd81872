"""The static buffer of a captured step: each key once, and steps that go on change as little as they must."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.model.cascade import plan_cascade
from runtime.model.forward_batch import Span
from runtime.tiers.cuda.plan import (
    BUCKETS,
    HEADER,
    PlanLayout,
    StepPlan,
    StepTooLargeError,
    bucket_for,
    tile_rows,
    work_items,
)

BLOCK_TOKENS = 16
LAYOUT = PlanLayout(rows=8, items=48, table_blocks=64, rows_per_item=3)


@st.composite
def shared_tables(draw: st.DrawFn) -> tuple[list[tuple[int, ...]], list[int]]:
    """Block tables that share leading blocks as a tree, and contexts that end in their last blocks."""
    numbers = iter(range(10_000))
    trunk = [next(numbers) for _ in range(draw(st.integers(0, 20)))]
    tables: list[tuple[int, ...]] = []
    contexts = []
    for _ in range(draw(st.integers(1, 8))):
        stem = list(draw(st.sampled_from([trunk, *map(list, tables)])))
        kept = stem[: draw(st.integers(0, len(stem)))]
        table = (*kept, *(next(numbers) for _ in range(draw(st.integers(1, 12)))))
        tables.append(table)
        contexts.append((len(table) - 1) * BLOCK_TOKENS + draw(st.integers(1, BLOCK_TOKENS)))
    return tables, contexts


def spans_of(tables: list[tuple[int, ...]], contexts: list[int], token: int = 7) -> list[Span]:
    return [Span([token], end - 1, 1, table) for table, end in zip(tables, contexts, strict=True)]


def new_plan() -> tuple[StepPlan, np.ndarray]:
    buffer = np.full(LAYOUT.size, -1, dtype=np.int32)
    return StepPlan(LAYOUT, buffer), buffer


def keys_seen(buffer: np.ndarray, row: int) -> list[tuple[int, int]]:
    """(block, offset) of each cached key that the row's parts reach, as the kernels read the buffer."""
    seen = []
    position = buffer[HEADER + LAYOUT.rows + row]
    count = buffer[LAYOUT.counts_at + row]
    at = LAYOUT.parts_at + row * (LAYOUT.items_at - LAYOUT.parts_at) // LAYOUT.rows
    for entry in buffer[at : at + count]:
        item, place = divmod(int(entry), LAYOUT.rows_per_item)
        assert item < buffer[0]
        fields = buffer[LAYOUT.items_at + item * LAYOUT.item_size :][: LAYOUT.item_size]
        rows, first, end = (int(value) for value in fields[:3])
        assert place < rows
        assert fields[4 + place] == row
        table = buffer[LAYOUT.tables_at + fields[4] * LAYOUT.table_blocks :]
        keys = range(first, min(end, position))
        seen += [(int(table[key // buffer[1]]), key % int(buffer[1])) for key in keys]
    return seen


@given(shared_tables())
@settings(max_examples=30)
def test_every_row_reaches_each_of_its_cached_keys_once(given_tables: tuple) -> None:
    tables, contexts = given_tables
    plan, buffer = new_plan()
    plan.update(spans_of(tables, contexts), tables, BLOCK_TOKENS)
    for row, (table, context) in enumerate(zip(tables, contexts, strict=True)):
        expected = [(table[key // BLOCK_TOKENS], key % BLOCK_TOKENS) for key in range(context - 1)]
        assert sorted(keys_seen(buffer, row)) == sorted(expected)


@given(shared_tables(), st.integers(1, 3))
@settings(max_examples=6)
def test_a_plan_that_goes_on_says_the_same_as_a_new_one(given_tables: tuple, steps: int) -> None:
    tables, contexts = given_tables
    plan, buffer = new_plan()
    free = iter(range(20_000, 30_000))
    for _ in range(steps * 8):
        plan.update(spans_of(tables, contexts), tables, BLOCK_TOKENS)
        for row, (table, context) in enumerate(zip(tables, contexts, strict=True)):
            expected = [(table[key // BLOCK_TOKENS], key % BLOCK_TOKENS) for key in range(context - 1)]
            assert sorted(keys_seen(buffer, row)) == sorted(expected)
        contexts = [context + 1 for context in contexts]
        tables = [
            table if context <= len(table) * BLOCK_TOKENS else (*table, next(free))
            for table, context in zip(tables, contexts, strict=True)
        ]


def test_a_step_that_goes_on_copies_only_tokens_and_positions() -> None:
    plan, _ = new_plan()
    table = (3, 4, 5)
    assert plan.update([Span([1], 35, 1, table)], [table], BLOCK_TOKENS) == LAYOUT.size
    assert plan.update([Span([1], 36, 1, table)], [table], BLOCK_TOKENS) == LAYOUT.head_end


@pytest.mark.parametrize(
    ("table", "start"),
    [((3, 4, 6), 36), ((3, 4, 5), 37), ((3, 4, 5), 35), ((3, 4, 5, 6), 36)],
    ids=["another block", "a token left out", "the same token again", "a new block"],
)
def test_a_step_that_changes_more_is_copied_whole(table: tuple[int, ...], start: int) -> None:
    plan, _ = new_plan()
    plan.update([Span([1], 35, 1, (3, 4, 5))], [(3, 4, 5)], BLOCK_TOKENS)
    assert plan.update([Span([1], start, 1, table)], [table], BLOCK_TOKENS) == LAYOUT.size


def test_another_block_size_is_another_plan() -> None:
    plan, buffer = new_plan()
    plan.update([Span([1], 35, 1, (3, 4, 5))], [(3, 4, 5)], BLOCK_TOKENS)
    assert plan.update([Span([1], 36, 1, (3, 4, 5))], [(3, 4, 5)], 32) == LAYOUT.size
    assert buffer[1] == 32


def test_chunks_grow_until_the_items_fit() -> None:
    plan, buffer = new_plan()
    tables = [tuple(range(60 * row, 60 * row + 60)) for row in range(8)]
    plan.update(spans_of(tables, [960] * 8), tables, BLOCK_TOKENS)
    assert 8 <= buffer[0] <= LAYOUT.items


def test_a_table_that_is_too_long_is_refused_and_the_next_step_is_planned_anew() -> None:
    plan, _ = new_plan()
    plan.update([Span([1], 0, 1, (0,))], [(0,)], BLOCK_TOKENS)
    long = tuple(range(65))
    with pytest.raises(StepTooLargeError, match="65 blocks"):
        plan.update([Span([1], 1030, 1, long)], [long], BLOCK_TOKENS)
    assert plan.update([Span([1], 1, 1, (0,))], [(0,)], BLOCK_TOKENS) == LAYOUT.size


def test_more_rows_than_work_items_are_refused() -> None:
    layout = PlanLayout(rows=8, items=4, table_blocks=64, rows_per_item=3)
    plan = StepPlan(layout, np.zeros(layout.size, dtype=np.int32))
    tables = [(row,) for row in range(8)]
    with pytest.raises(StepTooLargeError, match="4 is the most"):
        plan.update(spans_of(tables, [5] * 8), tables, BLOCK_TOKENS)


def test_a_buffer_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="int32 are needed"):
        StepPlan(LAYOUT, np.zeros(10, dtype=np.int32))


def test_a_shared_run_is_one_item_for_as_many_rows_as_a_tile_holds() -> None:
    tables = [(*range(8), 100 + row) for row in range(5)]
    items = work_items(plan_cascade(tables, [130] * 5, 16), [130] * 5, 16, 64, rows_per_item=3)
    shared = [item for item in items if len(item.rows) > 1]
    assert [(item.rows, item.first_key) for item in shared] == [
        ((0, 1, 2), 0),
        ((3, 4), 0),
        ((0, 1, 2), 64),
        ((3, 4), 64),
    ]
    assert sorted(item.rows[0] for item in items if item.has_newest) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("rows", "bucket"), [(1, 1), (2, 8), (8, 8), (9, 16), (33, 64), (65, None)])
def test_a_step_takes_the_smallest_bucket_that_holds_it(rows: int, bucket: int | None) -> None:
    assert bucket_for(rows, BUCKETS) == bucket


def test_a_tile_holds_the_group_of_at_least_one_row() -> None:
    for bucket in BUCKETS:
        for group in (1, 3, 6, 7, 16, 33, 64):
            lines = tile_rows(bucket, group)
            assert lines in (16, 32, 64)
            assert lines >= group
    with pytest.raises(ValueError, match="65 query heads"):
        tile_rows(1, 65)
