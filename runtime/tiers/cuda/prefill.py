"""Attention of a pass that goes layer by layer on a CUDA device: one launch a layer for a ragged batch."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from runtime.model.config import ModelConfig
from runtime.model.forward_batch import ForwardBatch, KVStorage
from runtime.tiers.cuda import attention_kernels
from runtime.tiers.cuda.ragged import tile_list, write_slots
from runtime.tiers.cuda.shapes import power_of_two


class TileAttention:
    """A StepAttention: a program takes some rows of a span and all heads of a KV group."""

    def __init__(
        self, config: ModelConfig, storage: KVStorage, batch: ForwardBatch, tables: Sequence[Sequence[int]]
    ) -> None:
        self._config, self._storage = config, storage
        device = storage.layers[0].device
        group = config.heads // config.kv_heads
        self._lines_m = max(64, power_of_two(group))
        slots = write_slots(batch, tables, storage.block_tokens)
        self._slots = torch.from_numpy(slots).to(device)
        tiles = np.array(list(tile_list(batch, self._lines_m // group)), dtype=np.int32)
        self._tiles = torch.from_numpy(tiles).to(device)
        widest = max(map(len, tables))
        padded = np.zeros((len(tables), widest), dtype=np.int32)
        for row, table in enumerate(tables):
            padded[row, : len(table)] = table
        self._tables = torch.from_numpy(padded).to(device)

    def attend(self, layer: int, q: Tensor, kv: Tensor) -> Tensor:
        """See `StepAttention.attend`."""
        config, rows = self._config, self._storage.layers[layer]
        rows.index_copy_(0, self._slots, kv)
        out = torch.empty(len(q), config.q_width, dtype=q.dtype, device=q.device)
        is_narrow = q.dtype.itemsize <= 2
        attention_kernels.attend_tiles[(len(self._tiles), config.kv_heads)](
            q, rows, self._tiles, self._tables, out, q.stride(0), 1 / math.sqrt(config.head_dim),
            self._storage.block_tokens, self._tables.shape[1], HEADS=config.heads, KV_HEADS=config.kv_heads,
            HEAD_DIM=config.head_dim, BLOCK_M=self._lines_m, BLOCK_D=power_of_two(config.head_dim, 32),
            BLOCK_S=64 if is_narrow else 32, num_warps=4, num_stages=2 if is_narrow else 1,
        )  # fmt: skip
        return out
