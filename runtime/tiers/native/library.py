"""The C interface as ctypes sees it; loaded once per process."""

import ctypes
import os
import struct
from ctypes import POINTER, c_char_p, c_float, c_int, c_int32, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import torch

from runtime.tiers.build_cache import cache_folder
from runtime.tiers.native.compiler import built_library, compiler_flags
from runtime.tiers.native.errors import LibraryRefusedError, NativeTierError

_CXX_NAMES: Final = {"float32": "float", "bfloat16": "bf16", "int8": "int8"}


@dataclass(frozen=True, slots=True)
class Kinds:
    """What a library is compiled for: float32, bfloat16 or int8 weights; float32 or bfloat16 KV."""

    weight: str
    value: str

    @property
    def flags(self) -> tuple[str, ...]:
        names = _CXX_NAMES[self.weight], _CXX_NAMES[self.value]
        return (*compiler_flags(), f"-DDYNOFARM_WEIGHT={names[0]}", f"-DDYNOFARM_VALUE={names[1]}")


class LinearPart(ctypes.Structure):
    """dynofarm::Linear."""

    _fields_ = (("weight", c_void_p), ("scales", c_void_p), ("bias", c_void_p))


class ConfigPart(ctypes.Structure):
    """dynofarm_config."""

    _fields_ = (
        *((name, c_int32) for name in ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab")),
        ("rms_eps", c_float),
        ("inverse_wavelengths", c_void_p),
    )


class LayerPart(ctypes.Structure):
    """dynofarm_layer."""

    _fields_ = (
        ("attn_norm", c_void_p),
        ("ffn_norm", c_void_p),
        ("qk_norm", c_void_p),
        *((name, LinearPart) for name in ("qkv", "o", "gate_up", "down")),
    )


class WeightsPart(ctypes.Structure):
    """dynofarm_weights."""

    _fields_ = (
        ("config", ConfigPart),
        ("layers", POINTER(LayerPart)),
        ("norm", c_void_p),
        ("head", LinearPart),
        ("embedding", c_void_p),
    )


class StorePart(ctypes.Structure):
    """dynofarm_store."""

    _fields_ = (
        ("layers", POINTER(c_void_p)),
        ("block_tokens", c_int32),
        ("table_stride", c_int32),
        ("tables", c_void_p),
    )


class StepPart(ctypes.Structure):
    """dynofarm_step."""

    _fields_ = (
        ("rows", c_int32),
        ("tokens", c_void_p),
        ("contexts", c_void_p),
        ("spans", c_void_p),
        ("embedded", c_void_p),
        ("wanted", c_int32),
        ("wanted_rows", c_void_p),
        ("logits", c_void_p),
        ("threads", c_int32),
    )


class PassPart(ctypes.Structure):
    """dynofarm_pass."""

    _fields_ = (
        ("spans", c_int32),
        ("singles", c_int32),
        ("starts", c_void_p),
        ("counts", c_void_p),
        ("threads", c_int32),
    )


class LayerRowsPart(ctypes.Structure):
    """dynofarm_layer_rows."""

    _fields_ = (
        ("queries", c_void_p),
        ("keys", c_void_p),
        ("out", c_void_p),
        ("query_stride", c_int32),
        ("key_stride", c_int32),
        ("layer", c_int32),
    )


class ProductPart(ctypes.Structure):
    """dynofarm_product."""

    _fields_ = (
        ("x", c_void_p),
        ("out", c_void_p),
        ("linear", LinearPart),
        *((name, c_int32) for name in ("rows", "inputs", "outputs", "threads")),
    )


def open_library(path: Path) -> ctypes.CDLL:
    """LibraryRefusedError when the file is not a library of ours for this machine."""
    if not _is_whole(path):
        # The loader would map what is not there, and the first touch of it would end the process.
        raise LibraryRefusedError(f"{path.name} is cut short")
    try:
        library = ctypes.CDLL(str(path))
        library.dynofarm_instruction_set.restype = c_char_p
        library.dynofarm_instruction_set.argtypes = ()
        library.dynofarm_model_new.restype = c_void_p
        library.dynofarm_model_new.argtypes = (POINTER(WeightsPart),)
        library.dynofarm_model_free.restype = None
        library.dynofarm_model_free.argtypes = (c_void_p,)
        library.dynofarm_step_run.restype = c_int
        library.dynofarm_step_run.argtypes = (c_void_p, POINTER(StepPart), POINTER(StorePart))
        library.dynofarm_pass_begin.restype = c_int
        library.dynofarm_pass_begin.argtypes = (c_void_p, POINTER(PassPart), POINTER(StorePart))
        library.dynofarm_pass_attend.restype = c_int
        library.dynofarm_pass_attend.argtypes = (c_void_p, POINTER(LayerRowsPart), c_void_p)
        for product in (library.dynofarm_product_run, library.dynofarm_gated_run):
            product.restype = c_int
            product.argtypes = (POINTER(ProductPart), c_void_p)
    except (OSError, AttributeError) as error:
        raise LibraryRefusedError(f"{path.name} cannot be loaded: {error}") from error
    return library


def _is_whole(path: Path) -> bool:
    """False for an ELF file (64 bits, little-endian) that ends before its last part, the section table."""
    try:
        with path.open("rb") as file:
            head = file.read(64)
            size_bytes = os.fstat(file.fileno()).st_size
    except OSError:
        return True  # the loader says what is wrong
    if not head.startswith(b"\x7fELF\x02\x01"):
        return True
    if len(head) < 64:
        return False
    (start_bytes,) = struct.unpack_from("<Q", head, 40)
    entry_bytes, entries = struct.unpack_from("<HH", head, 58)
    return bool(start_bytes + entry_bytes * entries <= size_bytes)


@cache
def load_library(kinds: Kinds) -> ctypes.CDLL:
    """The library for this machine, compiled where it is not cached. NativeTierError when there is none."""
    folder = cache_folder()
    try:
        return open_library(built_library(folder, kinds.flags))
    except LibraryRefusedError:
        return open_library(built_library(folder, kinds.flags, rebuild=True))


@cache
def torch_team() -> int | None:
    """Address of the function that starts work on the threads of torch's own operators (libgomp's).

    None where torch uses another OpenMP: the library then has threads of its own.
    """
    bundled = sorted((Path(torch.__file__).parent / "lib").glob("libgomp*"))
    for name in (*map(str, bundled), None):
        try:
            return ctypes.cast(ctypes.CDLL(name).GOMP_parallel, c_void_p).value
        except (OSError, AttributeError):
            continue
    return None


@cache
def why_not_here(kinds: Kinds) -> str | None:
    """One line that says why there is no library; None when it is loaded."""
    try:
        load_library(kinds)
    except NativeTierError as error:
        return str(error)
    return None
