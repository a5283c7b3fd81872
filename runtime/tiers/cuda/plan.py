"""A decode step as numbers in one static buffer: what a captured graph reads anew at each replay."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from runtime.model.cascade import CascadePlan, plan_cascade
from runtime.model.forward_batch import Span

BUCKETS: Final = (1, 8, 16, 32, 64)
"""Rows of the captured graphs. Rows up to 16 cost the same: a tile of the matrix units has 16."""
PARTS: Final = 256
"""Work items of one row at most."""
HEADER: Final = 2
"""Number of items, tokens of a block; then each row's token and position."""
ITEM_FIELDS: Final = 4
"""Rows, first key, end of keys, 1 if the row's own newest token belongs to it; then the rows."""


class StepTooLargeError(ValueError):
    """The step does not fit the static buffer; it is computed without a graph."""


def bucket_for(rows: int, buckets: Sequence[int] = BUCKETS) -> int | None:
    """The smallest bucket that holds `rows`; None where none does."""
    return min((bucket for bucket in buckets if bucket >= rows), default=None)


def tile_rows(bucket: int, group: int) -> int:
    """Lines of an attention tile: query heads of one KV head, of as many rows as fit.

    A shared prefix is read once for each tile. ValueError for groups of more than 64 heads.
    """
    if group > 64:
        raise ValueError(f"{group} query heads for one KV head, 64 is the most")
    return next(
        (lines for lines in (16, 32) if lines >= bucket * group), 32 if bucket <= 8 and group <= 32 else 64
    )


@dataclass(frozen=True, slots=True)
class PlanLayout:
    """Where things lie in the int32 buffer of one bucket.

    table_blocks: longest block table. rows_per_item: rows that one attention tile holds. items: how many
    there may be; each has a program of its own. chunk_tokens: keys of an item, or a multiple where there
    would be too many.
    """

    rows: int
    items: int
    table_blocks: int
    rows_per_item: int
    chunk_tokens: int = 64

    @property
    def head_end(self) -> int:
        """End of what changes at every step."""
        return HEADER + 2 * self.rows

    @property
    def counts_at(self) -> int:
        return self.head_end

    @property
    def parts_at(self) -> int:
        return self.counts_at + self.rows

    @property
    def items_at(self) -> int:
        return self.parts_at + self.rows * PARTS

    @property
    def item_size(self) -> int:
        return ITEM_FIELDS + self.rows_per_item

    @property
    def tables_at(self) -> int:
        return self.items_at + self.items * self.item_size

    @property
    def size(self) -> int:
        return self.tables_at + self.rows * self.table_blocks


@dataclass(frozen=True, slots=True)
class ReadItem:
    """Queries of `rows` over keys [first_key, end_key) of their (common) block table.

    has_newest: the item is its row's last one: it also sees and stores the token of this step, and its end
    is that token's position, whatever it will be.
    """

    rows: tuple[int, ...]
    first_key: int
    end_key: int
    has_newest: bool


def work_items(
    cascade: CascadePlan, contexts: Sequence[int], block_tokens: int, chunk_tokens: int, rows_per_item: int
) -> list[ReadItem]:
    """Every cached key of every row in exactly one item; each row's last item has its newest token."""
    items: list[ReadItem] = []
    reached = [0] * len(contexts)
    for run in cascade.runs:
        first = reached[run.rows[0]]
        end = first + len(run.blocks) * block_tokens
        for start in range(first, end, chunk_tokens):
            stop = min(end, start + chunk_tokens)
            items += [
                ReadItem(run.rows[at : at + rows_per_item], start, stop, has_newest=False)
                for at in range(0, len(run.rows), rows_per_item)
            ]
        for row in run.rows:
            reached[row] = end
    for row, context in enumerate(contexts):
        starts = range(reached[row], max(context - 1, reached[row] + 1), chunk_tokens)
        for start in starts:
            items.append(ReadItem((row,), start, start + chunk_tokens, has_newest=start == starts[-1]))
    return items


class StepPlan:
    """The buffer of one bucket on the host, and what of it a new step changes."""

    def __init__(self, layout: PlanLayout, buffer: np.ndarray) -> None:
        if buffer.dtype != np.int32 or buffer.shape != (layout.size,):
            raise ValueError(f"{layout.size} int32 are needed, the buffer has {buffer.shape} {buffer.dtype}")
        self.layout = layout
        self._buffer = buffer
        self._tables: list[tuple[int, ...]] = []
        self._contexts: list[int] = []
        self._room: list[int] = []
        self._block_tokens = 0

    def forget(self) -> None:
        """The next step is planned from nothing."""
        self._tables = []

    def update(self, spans: Sequence[Span], tables: Sequence[Sequence[int]], block_tokens: int) -> int:
        """Writes one decode step; returns how many leading int32 of the buffer changed.

        StepTooLargeError where tables or items do not fit; the buffer is then of no use.
        """
        layout, buffer = self.layout, self._buffer
        held = [tuple(table) for table in tables]
        contexts = [span.context_tokens for span in spans]
        at = HEADER
        buffer[at : at + len(spans)] = [span.token_ids[0] for span in spans]
        at += layout.rows
        buffer[at : at + len(spans)] = [context - 1 for context in contexts]
        if self._goes_on(held, contexts, block_tokens):
            changed = layout.head_end
            for row, (table, before) in enumerate(zip(held, self._tables, strict=True)):
                if len(table) > len(before):
                    self._write_table(row, table)
                    changed = layout.size
        else:
            self._plan(held, contexts, block_tokens)
            changed = layout.size
        self._tables, self._contexts = held, contexts
        return changed

    def _goes_on(self, tables: list[tuple[int, ...]], contexts: list[int], block_tokens: int) -> bool:
        """The same sequences, one token further, all within the chunks that were cut."""
        return (
            len(tables) == len(self._tables)
            and block_tokens == self._block_tokens
            and all(context == before + 1 for context, before in zip(contexts, self._contexts, strict=True))
            and all(context - 1 <= room for context, room in zip(contexts, self._room, strict=True))
            and all(table[: len(old)] == old for table, old in zip(tables, self._tables, strict=True))
            and max(map(len, tables)) <= self.layout.table_blocks
        )

    def _plan(self, tables: list[tuple[int, ...]], contexts: list[int], block_tokens: int) -> None:
        self._tables = []  # nothing to go on from if this fails half-way
        if max(map(len, tables)) > self.layout.table_blocks or len(tables) > self.layout.rows:
            raise StepTooLargeError(
                f"{max(map(len, tables))} blocks in a table of {self.layout.table_blocks}"
            )
        items = self._fitting_items(plan_cascade(tables, contexts, block_tokens), contexts, block_tokens)
        parts: list[list[int]] = [[] for _ in range(self.layout.rows)]
        rows_per_item = self.layout.rows_per_item
        for number, item in enumerate(items):
            for place, row in enumerate(item.rows):
                parts[row].append(number * rows_per_item + place)
            at = self.layout.items_at + number * self.layout.item_size
            fields = (len(item.rows), item.first_key, item.end_key, int(item.has_newest), *item.rows)
            self._buffer[at : at + len(fields)] = fields
        for row, entries in enumerate(parts):
            self._buffer[self.layout.counts_at + row] = len(entries)
            at = self.layout.parts_at + row * PARTS
            self._buffer[at : at + len(entries)] = entries
        for row, table in enumerate(tables):
            self._write_table(row, table)
        self._buffer[0], self._buffer[1] = len(items), block_tokens
        self._block_tokens = block_tokens
        self._room = [0] * len(tables)
        for item in items:
            if item.has_newest:
                self._room[item.rows[0]] = item.end_key

    def _fitting_items(
        self, cascade: CascadePlan, contexts: Sequence[int], block_tokens: int
    ) -> list[ReadItem]:
        """As few tokens a chunk as there are programs for: attention is as slow as its longest item."""
        layout, longest = self.layout, max(contexts)
        chunk_tokens = layout.chunk_tokens
        while True:
            items = work_items(cascade, contexts, block_tokens, chunk_tokens, layout.rows_per_item)
            parts = longest // chunk_tokens + len(cascade.runs) + 1
            if len(items) <= layout.items and parts <= PARTS:
                return items
            if chunk_tokens >= longest:
                raise StepTooLargeError(f"{len(items)} work items, {layout.items} is the most")
            excess = max(len(items) / layout.items, parts / PARTS)
            chunk_tokens = max(chunk_tokens + 1, int(chunk_tokens * excess))
            chunk_tokens += -chunk_tokens % layout.chunk_tokens

    def _write_table(self, row: int, table: tuple[int, ...]) -> None:
        at = self.layout.tables_at + row * self.layout.table_blocks
        self._buffer[at : at + len(table)] = table
