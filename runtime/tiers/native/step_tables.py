"""Block tables of a step in one array of int32, written only where they changed since the last step."""

import ctypes
from collections.abc import Sequence
from typing import Final

import numpy as np

from runtime.model.forward_batch import KVStorage
from runtime.tiers.native.library import StorePart

_FIRST_WIDTH: Final = 64


class StepTables:
    """Tables for up to `spans` spans of one KV store.

    A table that did not change since the last step costs one comparison.
    """

    def __init__(self, storage: KVStorage, spans: int) -> None:
        # Raises IndexError for a store that was freed, as reading a tensor of it would.
        first = storage.layers[0]
        if not first.is_contiguous():
            raise ValueError("the layers of a KV store must be contiguous")
        pointers = [layer.data_ptr() for layer in storage.layers]
        self._storage = storage
        self._layers = (ctypes.c_void_p * len(pointers))(*pointers)
        self._seen: list[Sequence[int]] = [()] * spans
        self._part = StorePart(layers=self._layers, block_tokens=storage.block_tokens)
        self._widen(_FIRST_WIDTH)
        self.reference = ctypes.byref(self._part)

    @property
    def spans(self) -> int:
        """How many tables it holds."""
        return len(self._seen)

    def take(self, tables: Sequence[Sequence[int]]) -> None:
        """Remembers the table of each span; they were checked by the store."""
        if not self._storage.layers:
            raise IndexError("the KV store was freed")
        for index, table in enumerate(tables):
            if self._seen[index] != table:
                self._write(index, table)

    def _write(self, index: int, table: Sequence[int]) -> None:
        if len(table) > self._array.shape[1]:
            self._widen(2 * len(table))
        self._array[index, : len(table)] = table
        # A caller may change a list after the step; a tuple is the caller's own.
        self._seen[index] = table if isinstance(table, tuple) else tuple(table)

    def _widen(self, width: int) -> None:
        self._array = np.zeros((len(self._seen), width), dtype=np.int32)
        for index, table in enumerate(self._seen):
            self._array[index, : len(table)] = table
        self._part.tables = self._array.ctypes.data
        self._part.table_stride = width
