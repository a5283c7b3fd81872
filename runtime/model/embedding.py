"""Token tables. Rows are kept as the file stores them: a tied head already holds a widened copy."""

from typing import Protocol

import gguf
import numpy as np
import torch
from torch import Tensor

from runtime.model.numeric import ON_CPU, Placement


class Embedding(Protocol):
    """Rows of the token table by id."""

    @property
    def table_bytes(self) -> int: ...

    def rows(self, token_ids: Tensor) -> Tensor:
        """[T] int64 -> [T, hidden] in the model's dtype, on the model's device."""
        ...

    def to(self, placement: Placement) -> "Embedding": ...


class DenseEmbedding:
    """A float table of any precision; widening a row is exact, so the table keeps its own dtype."""

    def __init__(self, table: Tensor, placement: Placement = ON_CPU) -> None:
        self.table = table
        self._placement = placement

    @property
    def table_bytes(self) -> int:
        return self.table.nbytes

    def rows(self, token_ids: Tensor) -> Tensor:
        return self.table.index_select(0, token_ids).to(self._placement.dtype)

    def to(self, placement: Placement) -> "DenseEmbedding":
        return DenseEmbedding(self.table.to(placement.device), placement)


class TiedEmbedding:
    """Rows of the output head [vocab, hidden], which holds the same numbers: no table of its own."""

    table_bytes = 0

    def __init__(self, head: Tensor) -> None:
        self.head = head

    def rows(self, token_ids: Tensor) -> Tensor:
        return self.head.index_select(0, token_ids)

    def to(self, placement: Placement) -> "TiedEmbedding":
        return TiedEmbedding(placement.put(self.head))


class QuantisedEmbedding:
    """Rows in a GGUF block format, dequantised when asked for: a quarter of the float32 table."""

    def __init__(
        self,
        packed_rows: np.ndarray,
        kind: gguf.GGMLQuantizationType,
        placement: Placement = ON_CPU,
    ) -> None:
        self._packed_rows = packed_rows
        self._kind = kind
        self._placement = placement

    @property
    def table_bytes(self) -> int:
        return int(self._packed_rows.nbytes)

    def rows(self, token_ids: Tensor) -> Tensor:
        packed = self._packed_rows[token_ids.cpu().numpy()]
        return self._placement.put(torch.from_numpy(gguf.quants.dequantize(packed, self._kind)))

    def to(self, placement: Placement) -> Embedding:
        if placement.device.type != "cpu":
            # Rows would be dequantised here and copied there at every step, with a wait for each.
            whole = torch.from_numpy(gguf.quants.dequantize(self._packed_rows, self._kind))
            return DenseEmbedding(placement.put(whole), placement)
        return QuantisedEmbedding(self._packed_rows, self._kind, placement)
