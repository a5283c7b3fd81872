"""The native tier: a small batch is one call that computes every layer."""

import ctypes
import weakref
from collections.abc import Sequence
from typing import Final, Literal

import numpy as np
import torch
from torch import Tensor

from runtime.errors import BadAttemptSpecError
from runtime.model.decoder_weights import DecoderWeights
from runtime.model.embedding import TiedEmbedding
from runtime.model.forward_batch import ForwardBatch, KVStore, StepAttention
from runtime.model.linear import Int8Linear, WeightDtype
from runtime.model.numeric import Placement
from runtime.tiers.native.bound_weights import BoundWeights
from runtime.tiers.native.library import Kinds, StepPart, load_library
from runtime.tiers.native.library import why_not_here as library_lost
from runtime.tiers.native.linear import linear_maker
from runtime.tiers.native.pass_attention import NativeAttention
from runtime.tiers.native.step_tables import StepTables

__all__ = ["MOST_ROWS", "NativeTier", "kinds_for", "linear_maker", "open_tier", "why_not_here"]

MOST_ROWS: Final = 16
"""Rows that one step takes; with more, torch's matrix products are faster than products row by row."""


def kinds_for(placement: Placement, weight_dtype: WeightDtype) -> Kinds:
    """BadAttemptSpecError for a precision that the native tier has no kernels for."""
    value = {torch.float32: "float32", torch.bfloat16: "bfloat16"}.get(placement.dtype)
    if value is None:
        raise BadAttemptSpecError("dtype", f"the native tier does not compute in {placement.dtype}")
    return Kinds("int8" if weight_dtype == "int8" else value, value)


def why_not_here(placement: Placement, weight_dtype: WeightDtype) -> str | None:
    """One line; None where the library is there, compiled now if need be."""
    return library_lost(kinds_for(placement, weight_dtype))


def open_tier(weights: DecoderWeights) -> "NativeTier":
    """Over weights made with this tier's `linear_maker`."""
    return NativeTier(weights)


class NativeTier:
    """Over weights on the CPU in float32 or bfloat16, or int8 for the linear layers."""

    name: Literal["native"] = "native"

    def __init__(self, weights: DecoderWeights) -> None:
        int8 = isinstance(weights.head, Int8Linear)
        self._library = load_library(kinds_for(weights.placement, "int8" if int8 else "auto"))
        self._weights = weights
        self._bound = BoundWeights(self._library, weights)
        self._needs_embedding = not isinstance(weights.embedding, TiedEmbedding)
        self._tables: weakref.WeakKeyDictionary[KVStore, StepTables] = weakref.WeakKeyDictionary()
        self._tokens = np.zeros(MOST_ROWS, dtype=np.int64)
        self._contexts = np.zeros(MOST_ROWS, dtype=np.int32)
        self._spans = np.zeros(MOST_ROWS, dtype=np.int32)
        self._wanted = np.zeros(MOST_ROWS, dtype=np.int32)
        self._step = StepPart(
            tokens=self._tokens.ctypes.data,
            contexts=self._contexts.ctypes.data,
            spans=self._spans.ctypes.data,
            wanted_rows=self._wanted.ctypes.data,
        )

    def step(self, batch: ForwardBatch, kv: KVStore) -> Tensor | None:
        """Takes up to MOST_ROWS tokens, whatever spans they belong to; ValueError as the store's `begin`."""
        rows = batch.tokens
        if rows > MOST_ROWS:
            return None
        tables = self._tables_of(kv, len(batch.spans))
        tables.take(kv.block_tables(batch))
        wanted = self._place_rows(batch)
        logits = torch.empty(wanted, self._weights.config.vocab, dtype=torch.float32)
        step = self._step
        step.rows = rows
        step.wanted = wanted
        step.logits = logits.data_ptr()
        step.threads = torch.get_num_threads()
        embedded = self._embedded(rows)
        step.embedded = None if embedded is None else embedded.data_ptr()
        if self._library.dynofarm_step_run(self._bound.handle, ctypes.byref(step), tables.reference):
            raise MemoryError("no memory for a decode step")
        return logits

    def attention(self, batch: ForwardBatch, kv: KVStore) -> StepAttention:
        """Straight from the store's blocks, chunks of several prompts in one call."""
        tables = self._tables_of(kv, len(batch.spans))
        tables.take(kv.block_tables(batch))
        return NativeAttention(self._library, self._bound.handle, batch, tables)

    def _tables_of(self, kv: KVStore, spans: int) -> StepTables:
        tables = self._tables.get(kv)
        if tables is None or tables.spans < spans:
            tables = self._tables[kv] = StepTables(kv.storage, max(MOST_ROWS, 2 * spans))
        return tables

    def _place_rows(self, batch: ForwardBatch) -> int:
        """Fills the arrays of the step; how many logits are wanted."""
        row = wanted = 0
        vocab = self._weights.config.vocab
        for index, span in enumerate(batch.spans):
            count = len(span.token_ids)
            self._check_tokens(span.token_ids, vocab)
            self._tokens[row : row + count] = span.token_ids
            self._spans[row : row + count] = index
            if count == 1:
                self._contexts[row] = span.context_tokens
            else:
                self._contexts[row : row + count] = np.arange(span.start_tokens + 1, span.context_tokens + 1)
            row += count
            for place in range(row - span.logit_tokens, row):
                self._wanted[wanted] = place
                wanted += 1
        return wanted

    @staticmethod
    def _check_tokens(token_ids: Sequence[int], vocab: int) -> None:
        if min(token_ids) < 0 or max(token_ids) >= vocab:
            raise IndexError(f"a token id outside 0..{vocab - 1}")

    def _embedded(self, rows: int) -> Tensor | None:
        if not self._needs_embedding:
            return None
        ids = torch.from_numpy(self._tokens[:rows].copy())
        return self._weights.embedding.rows(ids).float().contiguous()
