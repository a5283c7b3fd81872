"""Attention of a pass that goes layer by layer: decodes and chunks of prompts, straight from blocks."""

import ctypes

import numpy as np
import torch
from torch import Tensor

from runtime.model.forward_batch import ForwardBatch
from runtime.tiers.native.library import LayerRowsPart, PassPart, torch_team
from runtime.tiers.native.step_tables import StepTables


class NativeAttention:
    """One pass over a store whose tables were taken; `handle` is that of the model."""

    def __init__(
        self, library: ctypes.CDLL, handle: int | None, batch: ForwardBatch, tables: StepTables
    ) -> None:
        self._library = library
        self._handle = handle
        self._tables = tables  # must not go while the pass does
        self._starts = np.array([span.start_tokens for span in batch.spans], dtype=np.int32)
        self._counts = np.array([len(span.token_ids) for span in batch.spans], dtype=np.int32)
        part = PassPart(
            spans=len(batch.spans),
            singles=batch.decode_rows,
            starts=self._starts.ctypes.data,
            counts=self._counts.ctypes.data,
            threads=torch.get_num_threads(),
        )
        if library.dynofarm_pass_begin(handle, ctypes.byref(part), tables.reference):
            raise MemoryError("no memory for the attention of a pass")

    def attend(self, layer: int, q: Tensor, kv: Tensor) -> Tensor:
        """See `StepAttention.attend`."""
        rows, heads, head_dim = q.shape
        _check_inner(q, (head_dim, 1))
        _check_inner(kv, (kv.shape[2] * head_dim, head_dim, 1))
        out = torch.empty(rows, heads * head_dim, dtype=q.dtype)
        part = LayerRowsPart(
            queries=q.data_ptr(),
            keys=kv.data_ptr(),
            out=out.data_ptr(),
            query_stride=q.stride(0),
            key_stride=kv.stride(0),
            layer=layer,
        )
        if self._library.dynofarm_pass_attend(self._handle, ctypes.byref(part), torch_team()):
            raise MemoryError("no memory for the attention of a layer")
        return out


def _check_inner(tensor: Tensor, strides: tuple[int, ...]) -> None:
    if tensor.stride()[1:] != strides:
        raise ValueError(f"rows of attention must lie together: strides {tensor.stride()}")
