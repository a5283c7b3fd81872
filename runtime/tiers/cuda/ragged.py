"""A ragged batch as numbers: which rows a program takes, and where each row is written."""

from collections.abc import Iterator, Sequence

import numpy as np

from runtime.model.forward_batch import ForwardBatch


def tile_list(batch: ForwardBatch, tokens_per_tile: int) -> Iterator[tuple[int, int, int, int]]:
    """First batch row, rows, position of the first row and span of each tile; a tile has rows of one span."""
    row = 0
    for index, span in enumerate(batch.spans):
        for first in range(0, len(span.token_ids), tokens_per_tile):
            count = min(tokens_per_tile, len(span.token_ids) - first)
            yield row + first, count, span.start_tokens + first, index
        row += len(span.token_ids)


def write_slots(batch: ForwardBatch, tables: Sequence[Sequence[int]], block_tokens: int) -> np.ndarray:
    """Slot of each batch row, int64."""
    slots = []
    for span, table in zip(batch.spans, tables, strict=True):
        positions = np.arange(span.start_tokens, span.context_tokens)
        first = span.start_tokens // block_tokens
        blocks = np.asarray(table[first : -(-span.context_tokens // block_tokens)], dtype=np.int64)
        slots.append(blocks[positions // block_tokens - first] * block_tokens + positions % block_tokens)
    return np.concatenate(slots)
