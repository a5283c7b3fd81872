"""The plan reads every key of every row exactly once, and shares what is worth sharing."""

from hypothesis import given
from hypothesis import strategies as st

from runtime.model.cascade import SharedRun, plan_cascade

TABLES = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=0, max_size=6)


@given(tables=TABLES, block_tokens=st.integers(1, 4), min_saved=st.integers(1, 12), data=st.data())
def test_each_row_reads_each_of_its_blocks_exactly_once(
    tables: list[list[int]], block_tokens: int, min_saved: int, data: st.DataObject
) -> None:
    # Blocks are unique within a table in the pool; make them so by naming a block after its path.
    tables = [[hash((*table[: depth + 1], depth)) for depth in range(len(table))] for table in tables]
    contexts = [
        data.draw(st.integers((len(table) - 1) * block_tokens + 1, len(table) * block_tokens))
        for table in tables
    ]
    plan = plan_cascade(tables, contexts, block_tokens, min_saved)
    for row, table in enumerate(tables):
        shared = [block for run in plan.runs if row in run.rows for block in run.blocks]
        assert shared + table[plan.own_from_block[row] :] == table
        assert plan.own_from_block[row] < len(table), "the block being written is never shared"
    for run in plan.runs:
        assert (len(run.rows) - 1) * len(run.blocks) * block_tokens >= min_saved


def test_nested_sharing_is_found() -> None:
    tables = [[1, 2, 3, 10], [1, 2, 3, 11], [1, 2, 12], [5, 6, 13], [7, 14]]
    plan = plan_cascade(tables, [49, 50, 33, 40, 20], 16, min_saved_tokens=1)
    assert set(plan.runs) == {SharedRun((0, 1, 2), (1, 2)), SharedRun((0, 1), (3,))}
    assert plan.own_from_block == (3, 3, 2, 0, 0)


def test_a_run_too_short_to_pay_is_read_by_each_row() -> None:
    assert plan_cascade([[1, 2], [1, 3]], [20, 20], 16, min_saved_tokens=17).runs == ()


def test_blocks_left_out_above_are_read_with_the_longer_run_below() -> None:
    tables = [[1, 2, 3, 10], [1, 2, 3, 11], [1, 12]]
    plan = plan_cascade(tables, [60, 60, 20], 16, min_saved_tokens=40)
    assert plan.runs == (SharedRun((0, 1), (1, 2, 3)),)
    assert plan.own_from_block == (3, 3, 0)
