"""The contamination check finds each way in which a block can hold what it should not."""

import pytest

from runtime.errors import ContaminationError
from runtime.kv.block_table import CopyBlock
from runtime.kv.contamination import BlockShadow, ForeignHistoryError


def shadow_of(blocks: list[int], tokens: list[int]) -> BlockShadow:
    shadow = BlockShadow(block_tokens=2)
    shadow.write(blocks, 0, tokens)
    return shadow


def test_a_sequence_whose_blocks_hold_its_tokens_passes() -> None:
    shadow_of([3, 1], [7, 8, 9]).verify(5, [3, 1], [7, 8, 9])


def test_a_foreign_token_is_named_with_its_sequence_and_position() -> None:
    shadow = shadow_of([3, 1], [7, 8, 9])
    shadow.write([1], 0, [4])
    with pytest.raises(ContaminationError) as found:
        shadow.verify(5, [3, 1], [7, 8, 9])
    error = found.value
    assert (error.sequence_id, error.position, error.expected_token, error.found_token) == ("5", 2, 9, 4)


def test_a_slot_that_was_never_written_is_found() -> None:
    with pytest.raises(ContaminationError) as found:
        shadow_of([0], [7]).verify(5, [0], [7, 8])
    assert (found.value.position, found.value.found_token) == (1, None)


def test_the_right_token_at_another_position_is_found() -> None:
    shadow = shadow_of([0, 1], [7, 7, 7, 7])
    with pytest.raises(ContaminationError) as found:
        shadow.verify(5, [1], [7])
    assert found.value.position == 0


def test_the_right_token_after_another_history_is_found() -> None:
    shadow = shadow_of([0, 1], [7, 8, 9])
    shadow.write([2, 3], 0, [6, 8, 9])
    with pytest.raises(ForeignHistoryError, match="another") as found:
        shadow.verify(5, [0, 3], [7, 8, 9])
    assert (found.value.position, found.value.expected_token) == (2, 9)


def test_a_copy_carries_history_and_clears_what_the_target_held() -> None:
    shadow = shadow_of([0], [7])
    shadow.write([1], 0, [5, 6])
    shadow.copy(CopyBlock(source=0, target=1, tokens=2))
    shadow.verify(5, [1], [7])
    assert shadow.read([1], 1) is None
