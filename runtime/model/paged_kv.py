"""The tensors behind the block pool: one per layer, blocks by number. Ownership is decided elsewhere."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from runtime.errors import PoolTooSmallError
from runtime.model.config import ModelConfig
from runtime.model.forward_batch import ForwardBatch, KVStorage
from runtime.model.numeric import Placement, zero_pages
from runtime.model.paged_attention import PagedAttention


class PagedKV:
    """Per layer [num_blocks * block_tokens, 2, kv_heads, head_dim]: slot = block * block_tokens + offset.

    K and V of a token lie side by side, so that a write is one run and a gather one read. Memory comes from
    the system as blocks are first written (zero pages), and stale slots hold finite numbers.
    """

    def __init__(
        self,
        config: ModelConfig,
        num_blocks: int,
        block_tokens: int,
        placement: Placement,
    ) -> None:
        if num_blocks < 1 or block_tokens < 1:
            raise PoolTooSmallError(1, num_blocks, f"blocks of {block_tokens} tokens")
        shape = (num_blocks * block_tokens, 2, config.kv_heads, config.head_dim)
        self._layers = [zero_pages(shape, placement) for _ in range(config.layers)]
        self.num_blocks = num_blocks
        self.block_tokens = block_tokens
        self._checked: list[Sequence[int]] = []
        self.block_bytes = config.kv_format(placement.value_bytes).block_bytes(block_tokens)

    @property
    def storage(self) -> KVStorage:
        """The pool's tensors."""
        return KVStorage(self._layers, self.block_tokens)

    def block_tables(self, batch: ForwardBatch) -> list[Sequence[int]]:
        """ValueError when a block table does not cover its span or names a block that is not there.

        The blocks of a table that was checked for the same span of the last batch are not looked at again.
        """
        tables: list[Sequence[int]] = []
        for index, span in enumerate(batch.spans):
            table = span.block_table
            needed = -(-span.context_tokens // self.block_tokens)
            if len(table) < needed:
                raise ValueError(f"span {index}: {len(table)} blocks, {needed} are needed")
            if index >= len(self._checked) or self._checked[index] != table:
                if min(table) < 0 or max(table) >= self.num_blocks:
                    raise ValueError(f"span {index}: a block outside 0..{self.num_blocks - 1}")
                self._checked[index:] = [tuple(table)]
            tables.append(table)
        return tables

    def begin(self, batch: ForwardBatch) -> PagedAttention:
        """As `block_tables` refuses."""
        self.block_tables(batch)
        return PagedAttention(self._layers, self.block_tokens, batch)

    def copy_slots(self, copies: Iterable[tuple[int, int, int]]) -> None:
        """Copy on write: (source block, target block, tokens), the first `tokens` slots, in all layers."""
        for source, target, tokens in copies:
            if not 0 <= tokens <= self.block_tokens:
                raise ValueError(f"{tokens} tokens do not fit a block of {self.block_tokens}")
            read = source * self.block_tokens
            write = target * self.block_tokens
            for rows in self._layers:
                rows[write : write + tokens] = rows[read : read + tokens]

    def slots(self, layer: int, block: int, tokens: int) -> Tensor:
        """[tokens, 2, kv_heads, head_dim]: a view of the first slots of a block."""
        start = block * self.block_tokens
        return self._layers[layer][start : start + tokens]

    def are_finite(self, groups: Sequence[Sequence[int]]) -> list[bool]:
        """For each group of slots, whether the last layer's K and V there are numbers.

        What breaks in any layer reaches the last one, also where no logits are asked for.
        """
        if not groups:
            return []
        rows = self._layers[-1]
        slots = torch.tensor([slot for group in groups for slot in group], device=rows.device)
        finite = iter(torch.isfinite(rows.index_select(0, slots)).flatten(1).all(dim=1).tolist())
        return [all([next(finite) for _ in group]) for group in groups]

    def free(self) -> None:
        """Let go of the tensors; the store cannot be used afterwards."""
        self._layers.clear()
