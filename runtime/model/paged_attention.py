"""Attention of one pass over block tables: decodes together, shared runs read once; prefills one by one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from runtime.model.attention import causal_bias, chunk_attention, merge, partial_attention
from runtime.model.cascade import MIN_SAVED_TOKENS, SharedRun, plan_cascade
from runtime.model.forward_batch import ForwardBatch, Span

Places = slice | Tensor
"""Rows of a tensor: a slice where they lie together (read as a view, no copy), else their numbers."""


@dataclass(frozen=True, slots=True)
class _KeySet:
    """Slots that a set of rows reads. Shared by all rows: S slots, bias None; own: R * S slots."""

    rows: Places
    row_count: int
    slots: Places
    bias: Tensor | None


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Rows of one sequence's prefill and the slots of all its positions so far."""

    rows: slice
    slots: Places
    bias: Tensor | None


class PagedAttention:
    """Planned once per pass from the batch's block tables; layers then only gather, attend and merge."""

    def __init__(
        self,
        layers: list[Tensor],
        block_tokens: int,
        batch: ForwardBatch,
        min_saved_tokens: int = MIN_SAVED_TOKENS,
    ) -> None:
        self._layers = layers
        self._block_tokens = block_tokens
        self._device = layers[0].device
        self._decode_rows = batch.decode_rows
        self._write_slots = torch.cat([self._slots_from(span, span.start_tokens) for span in batch.spans]).to(
            self._device
        )
        decodes = batch.spans[: self._decode_rows]
        plan = plan_cascade(
            [span.block_table for span in decodes],
            [span.context_tokens for span in decodes],
            block_tokens,
            min_saved_tokens,
        )
        self.shared_runs = plan.runs
        self._own = [
            self._own_keys(rows, decodes, plan.own_from_block)
            for rows in _rows_of_like_length(decodes, plan.own_from_block, block_tokens)
        ]
        self._shared = [self._shared_keys(run) for run in plan.runs]
        self._chunks = self._plan_chunks(batch)

    def attend(self, layer: int, q: Tensor, kv: Tensor) -> Tensor:
        """See `StepAttention.attend`."""
        rows = self._layers[layer]
        rows.index_copy_(0, self._write_slots, kv)
        parts = []
        if self._decode_rows:
            parts.append(self._decode(rows, q[: self._decode_rows]))
        for chunk in self._chunks:
            seen = _take(rows, chunk.slots)
            parts.append(chunk_attention(q[chunk.rows], seen[:, 0], seen[:, 1], chunk.bias))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _decode(self, rows: Tensor, q: Tensor) -> Tensor:
        batch, heads, head_dim = q.shape
        kv_heads = rows.shape[2]
        queries = q.reshape(batch, kv_heads, heads // kv_heads, head_dim)
        if len(self._own) == 1:
            out, lse = _attend_own(rows, queries, self._own[0])
        else:
            out = torch.empty_like(queries)
            lse = queries.new_empty(queries.shape[:-1], dtype=torch.float32)
            for keys in self._own:
                out[keys.rows], lse[keys.rows] = _attend_own(rows, queries[keys.rows], keys)
        for keys in self._shared:
            shared_out, shared_lse = _attend_shared(rows, queries[keys.rows], keys)
            merged, merged_lse = merge(out[keys.rows], lse[keys.rows], shared_out, shared_lse)
            if keys.row_count == batch:
                out, lse = merged, merged_lse
            else:
                out[keys.rows], lse[keys.rows] = merged, merged_lse
        return out.reshape(batch, heads * head_dim)

    def _own_keys(self, rows: tuple[int, ...], decodes: Sequence[Span], own_from: Sequence[int]) -> _KeySet:
        starts = torch.tensor([own_from[row] * self._block_tokens for row in rows])
        ends = torch.tensor([decodes[row].context_tokens for row in rows])
        tables = torch.zeros(len(rows), max(len(decodes[row].block_table) for row in rows), dtype=torch.int64)
        for index, row in enumerate(rows):
            table = decodes[row].block_table
            tables[index, : len(table)] = torch.tensor(table)
        widest = int((ends - starts).max())
        positions = starts.unsqueeze(1) + torch.arange(widest)
        # Padding repeats the row's own last token and is hidden: a row never reads what another one wrote.
        positions_held = torch.minimum(positions, ends.unsqueeze(1) - 1)
        blocks = tables.gather(1, positions_held // self._block_tokens)
        slots = blocks * self._block_tokens + positions_held % self._block_tokens
        bias = None
        if bool((positions != positions_held).any()):
            bias = torch.zeros(positions.shape, dtype=self._layers[0].dtype)
            bias = bias.masked_fill_(positions != positions_held, -math.inf)[:, None, None, :].to(
                self._device
            )
        return _KeySet(self._places(torch.tensor(rows)), len(rows), self._places(slots.reshape(-1)), bias)

    def _shared_keys(self, run: SharedRun) -> _KeySet:
        blocks = torch.tensor(run.blocks).unsqueeze(1)
        slots = (blocks * self._block_tokens + torch.arange(self._block_tokens)).reshape(-1)
        return _KeySet(self._places(torch.tensor(run.rows)), len(run.rows), self._places(slots), None)

    def _plan_chunks(self, batch: ForwardBatch) -> list[_Chunk]:
        chunks = []
        row = self._decode_rows
        for span in batch.spans[self._decode_rows :]:
            tokens = len(span.token_ids)
            bias = causal_bias(tokens, span.context_tokens, self._layers[0])
            slots = self._places(self._slots_from(span, 0))
            chunks.append(_Chunk(slice(row, row + tokens), slots, bias))
            row += tokens
        return chunks

    def _slots_from(self, span: Span, start: int) -> Tensor:
        positions = torch.arange(start, span.context_tokens)
        blocks = torch.tensor(span.block_table)[positions // self._block_tokens]
        return blocks * self._block_tokens + positions % self._block_tokens

    def _places(self, numbers: Tensor) -> Places:
        first, count = int(numbers[0]), len(numbers)
        if torch.equal(numbers, torch.arange(first, first + count)):
            return slice(first, first + count)
        return numbers.to(self._device)


def _take(rows: Tensor, slots: Places) -> Tensor:
    return rows[slots] if isinstance(slots, slice) else rows.index_select(0, slots)


def _attend_own(rows: Tensor, queries: Tensor, keys: _KeySet) -> tuple[Tensor, Tensor]:
    batch, kv_heads, _, head_dim = queries.shape
    kv = _take(rows, keys.slots).view(batch, -1, 2, kv_heads, head_dim).transpose(1, 3)
    return partial_attention(queries, kv[:, :, 0], kv[:, :, 1], keys.bias)


def _attend_shared(rows: Tensor, queries: Tensor, keys: _KeySet) -> tuple[Tensor, Tensor]:
    batch, kv_heads, group, head_dim = queries.shape
    kv = _take(rows, keys.slots).unsqueeze(0).transpose(1, 3)
    stacked = queries.transpose(0, 1).reshape(1, kv_heads, batch * group, head_dim)
    out, lse = partial_attention(stacked, kv[:, :, 0], kv[:, :, 1], None)
    return (
        out.reshape(kv_heads, batch, group, head_dim).transpose(0, 1),
        lse.reshape(kv_heads, batch, group).transpose(0, 1),
    )


def _rows_of_like_length(
    decodes: Sequence[Span], own_from: Sequence[int], block_tokens: int
) -> list[tuple[int, ...]]:
    """Rows to pad together: none is padded to more than twice its own length, a short one always may be."""
    lengths = [
        span.context_tokens - start * block_tokens for span, start in zip(decodes, own_from, strict=True)
    ]
    groups: list[list[int]] = []
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if groups and lengths[groups[-1][0]] <= 2 * max(lengths[row], block_tokens):
            groups[-1].append(row)
        else:
            groups.append([row])
    return [tuple(sorted(group)) for group in groups]
