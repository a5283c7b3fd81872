"""GGUF container, read with a bound on everything: nothing is allocated that the file does not have.

The `gguf` package knows the formats and dequantises; its reader is not used: it builds an array object per
metadata string (4 s for a vocabulary of 49,152) and takes declared sizes on trust.
Source: the GGUF specification of ggml, versions 2 and 3, little-endian.
"""

import math
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from io import BufferedReader
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np

from runtime.errors import ModelFileCorruptError, ModelFileMissingError, UnsupportedModelFeatureError

_SCALARS: Final = {
    gguf.GGUFValueType.UINT8: "B",
    gguf.GGUFValueType.INT8: "b",
    gguf.GGUFValueType.UINT16: "H",
    gguf.GGUFValueType.INT16: "h",
    gguf.GGUFValueType.UINT32: "I",
    gguf.GGUFValueType.INT32: "i",
    gguf.GGUFValueType.FLOAT32: "f",
    gguf.GGUFValueType.BOOL: "?",
    gguf.GGUFValueType.UINT64: "Q",
    gguf.GGUFValueType.INT64: "q",
    gguf.GGUFValueType.FLOAT64: "d",
}
_MAX_DIMENSIONS: Final = 4
_DEQUANTISE_CHUNK_VALUES: Final = 1 << 20

MetadataValue = str | int | float | bool | list[str] | list[int] | list[float] | list[bool]


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where a tensor lies. shape: outermost first, as torch has it. start: from the beginning of the file."""

    name: str
    shape: tuple[int, ...]
    kind: gguf.GGMLQuantizationType
    start: int
    size_bytes: int


@cache
def can_dequantise(kind: gguf.GGMLQuantizationType) -> bool:
    """False for whole numbers, and for formats that the `gguf` package only names."""
    _, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    try:
        gguf.quants.dequantize(np.zeros((1, block_bytes), dtype=np.uint8), kind)
    except NotImplementedError:
        return False
    return True


class GGUFFile:
    """Metadata and tensor table of an open file; ModelFileCorruptError when they contradict its size."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise ModelFileMissingError(path)
        self.path = path
        self._file = path.open("rb")
        try:
            cursor = _Cursor(path, self._file, path.stat().st_size)
            self.metadata, self.tensors = _read_header(cursor)
        except BaseException:
            self._file.close()
            raise

    def read_packed(self, entry: TensorEntry, first_row: int, rows: int) -> np.ndarray:
        """[rows, bytes per row] uint8: rows of the tensor (seen as a matrix) as the file stores them."""
        total_rows = math.prod(entry.shape[:-1])
        row_bytes = entry.size_bytes // total_rows
        self._file.seek(entry.start + first_row * row_bytes)
        data = self._file.read(rows * row_bytes)
        if len(data) != rows * row_bytes:
            raise ModelFileCorruptError(
                self.path, f"tensor {entry.name} ends early", rows * row_bytes, len(data)
            )
        return np.frombuffer(data, dtype=np.uint8).reshape(rows, row_bytes)

    def read(self, entry: TensorEntry) -> np.ndarray:
        """float32 in the entry's shape; holds at most 4 MB besides. The kind is one that `can_dequantise`."""
        rows, columns = math.prod(entry.shape[:-1]), entry.shape[-1]
        out = np.empty((rows, columns), dtype=np.float32)
        chunk_rows = max(1, _DEQUANTISE_CHUNK_VALUES // columns)
        for first in range(0, rows, chunk_rows):
            count = min(chunk_rows, rows - first)
            packed = self.read_packed(entry, first, count)
            out[first : first + count] = gguf.quants.dequantize(packed, entry.kind)
        return out.reshape(entry.shape)

    def close(self) -> None:
        self._file.close()


class _Cursor:
    """Reads forward and refuses to pass the end of the file."""

    def __init__(self, path: Path, file: BufferedReader, size_bytes: int) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self.offset = 0
        self._file = file

    def take(self, count: int) -> bytes:
        self.require(count)
        self.offset += count
        return self._file.read(count)

    def require(self, count: int) -> None:
        if self.offset + count > self.size_bytes:
            raise ModelFileCorruptError(
                self.path, "the file is cut short in its header", self.offset + count, self.size_bytes
            )

    def scalar(self, code: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize(code)))[0]

    def text(self) -> str:
        raw = self.take(self.scalar("Q"))
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.corrupt(f"text before byte {self.offset} is not UTF-8") from error

    def corrupt(self, detail: str) -> ModelFileCorruptError:
        return ModelFileCorruptError(self.path, detail)


def _read_header(cursor: _Cursor) -> tuple[dict[str, MetadataValue], dict[str, TensorEntry]]:
    if cursor.size_bytes < 4 or cursor.take(4) != b"GGUF":
        raise cursor.corrupt("not a GGUF file (its first four bytes are not 'GGUF')")
    version = cursor.scalar("I")
    if version not in (2, 3):
        raise UnsupportedModelFeatureError(
            f"GGUF version {version}", f"{cursor.path}: versions 2 and 3 are read"
        )
    tensor_count, key_count = cursor.scalar("Q"), cursor.scalar("Q")
    metadata: dict[str, MetadataValue] = {}
    for _ in range(key_count):
        key = cursor.text()
        metadata[key] = _read_value(cursor)
    declared = [_read_tensor_info(cursor) for _ in range(tensor_count)]
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1:
        raise cursor.corrupt(f"general.alignment is {alignment!r}")
    data_start = -(-cursor.offset // alignment) * alignment
    tensors = {name: place(data_start) for name, place in declared}
    if len(tensors) != tensor_count:
        raise cursor.corrupt("two tensors have the same name")
    _check_places(cursor, tensors.values())
    return metadata, tensors


def _check_places(cursor: _Cursor, tensors: Iterable[TensorEntry]) -> None:
    """ModelFileCorruptError when tensors lie over each other or beyond the end of the file."""
    end, before = 0, ""
    for entry in sorted(tensors, key=lambda entry: entry.start):
        if entry.start < end:
            raise cursor.corrupt(f"tensor {entry.name} lies over tensor {before}")
        end, before = entry.start + entry.size_bytes, entry.name
    if end > cursor.size_bytes:
        raise ModelFileCorruptError(
            cursor.path, "the file is cut short in its tensors", end, cursor.size_bytes
        )


def _value_type(cursor: _Cursor) -> gguf.GGUFValueType:
    raw = cursor.scalar("I")
    try:
        return gguf.GGUFValueType(raw)
    except ValueError as error:
        raise cursor.corrupt(f"unknown metadata type {raw} at byte {cursor.offset}") from error


def _read_value(cursor: _Cursor) -> MetadataValue:
    kind = _value_type(cursor)
    if kind is gguf.GGUFValueType.STRING:
        return cursor.text()
    if kind is not gguf.GGUFValueType.ARRAY:
        value: MetadataValue = cursor.scalar(_SCALARS[kind])
        return value
    item_kind, count = _value_type(cursor), cursor.scalar("Q")
    if item_kind is gguf.GGUFValueType.ARRAY:
        raise cursor.corrupt("a metadata array of arrays")
    if item_kind is gguf.GGUFValueType.STRING:
        cursor.require(8 * count)
        return [cursor.text() for _ in range(count)]
    code = _SCALARS[item_kind]
    return list(struct.unpack(f"<{count}{code}", cursor.take(count * struct.calcsize(code))))


def _read_tensor_info(cursor: _Cursor) -> tuple[str, Callable[[int], TensorEntry]]:
    """The tensor's name, and its entry once it is known where the tensor data begins."""
    name = cursor.text()
    dimensions = cursor.scalar("I")
    if not 1 <= dimensions <= _MAX_DIMENSIONS:
        raise cursor.corrupt(f"tensor {name} has {dimensions} dimensions")
    shape = tuple(cursor.scalar("Q") for _ in range(dimensions))[::-1]
    raw_kind, offset = cursor.scalar("I"), cursor.scalar("Q")
    try:
        kind = gguf.GGMLQuantizationType(raw_kind)
    except ValueError as error:
        raise cursor.corrupt(f"tensor {name} has the unknown type {raw_kind}") from error
    block_values, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    if min(shape) < 1 or shape[-1] % block_values:
        raise cursor.corrupt(f"tensor {name} of shape {shape} cannot be of type {kind.name}")
    size_bytes = math.prod(shape) // block_values * block_bytes
    return name, lambda data_start: TensorEntry(name, shape, kind, data_start + offset, size_bytes)
