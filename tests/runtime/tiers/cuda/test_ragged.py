"""A ragged batch as numbers for the kernels."""

from hypothesis import given
from hypothesis import strategies as st

from runtime.model.forward_batch import ForwardBatch, Span
from runtime.tiers.cuda.ragged import tile_list, write_slots

SPANS = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 70)), min_size=1, max_size=5)


def batch_of(sizes: list[tuple[int, int]]) -> ForwardBatch:
    return ForwardBatch(tuple(Span([1] * count, start, 0) for count, start in sizes))


@given(SPANS, st.integers(1, 21))
def test_each_row_is_in_one_tile_with_its_own_position(sizes: list[tuple[int, int]], per_tile: int) -> None:
    batch = batch_of(sizes)
    found = [
        (row + step, position + step, span)
        for row, count, position, span in tile_list(batch, per_tile)
        for step in range(count)
    ]
    expected = [
        (position, index)
        for index, span in enumerate(batch.spans)
        for position in range(span.start_tokens, span.context_tokens)
    ]
    assert [row for row, _, _ in found] == list(range(batch.tokens))
    assert [(position, span) for _, position, span in found] == expected


@given(SPANS, st.sampled_from([1, 3, 16, 1000]))
def test_each_row_is_written_where_its_table_says(sizes: list[tuple[int, int]], block_tokens: int) -> None:
    batch = batch_of(sizes)
    tables = [
        tuple(1000 * index + 7 * block for block in range(-(-span.context_tokens // block_tokens)))
        for index, span in enumerate(batch.spans)
    ]
    expected = [
        table[position // block_tokens] * block_tokens + position % block_tokens
        for span, table in zip(batch.spans, tables, strict=True)
        for position in range(span.start_tokens, span.context_tokens)
    ]
    assert write_slots(batch, tables, block_tokens).tolist() == expected
