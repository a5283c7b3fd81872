"""The products between two attentions as one kernel, described to it and launched.

src/chain.cu says how it computes; src/phase.cuh is the other side of the structures here.
"""

import ctypes
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from runtime.model.config import ModelConfig
from runtime.tiers.cuda.chain_shape import (
    MOST_PHASES,
    MOST_STAGES,
    ChainShape,
    PhaseShape,
    board_bytes,
    cluster_of,
    divide_all,
    row_tiles_of,
    squares_stride,
    threads_of,
    why_no_shape,
)
from runtime.tiers.cuda.driver import Kernel
from runtime.tiers.cuda.errors import ChainShapeError
from runtime.tiers.cuda.nvrtc import machine_code
from runtime.tiers.cuda.shapes import ChainTile
from runtime.tiers.cuda.step_weights import StepLayer, StepWeights

OLDEST_CAPABILITY: Final = (9, 0)
"""Bulk copies into shared memory, and kernels that begin before the one before them has ended."""


def why_no_device(dtype: torch.dtype, device: torch.device) -> str | None:
    """What device and precision lack for this kernel; None if nothing."""
    if dtype != torch.bfloat16:
        return f"it computes in bfloat16, not in {str(dtype).removeprefix('torch.')}"
    capability = torch.cuda.get_device_capability(device)
    if capability < OLDEST_CAPABILITY:
        return f"the device has compute capability {capability[0]}.{capability[1]}, 9.0 is needed"
    return None


def why_no_chain(config: ModelConfig, x: Tensor) -> str | None:
    """Why the products of a batch in x [rows, hidden] are not this kernel's; None where they can be."""
    if x.device.type != "cuda":
        return "no CUDA device"
    reason = why_no_device(x.dtype, x.device)
    if reason is not None:
        return reason
    return why_no_shape(config, len(x), most_shared_bytes(x.device))


def most_shared_bytes(device: torch.device) -> int:
    """What one block may have of a processor's shared memory."""
    properties: Any = torch.cuda.get_device_properties(device)  # torch's stubs name some of them only
    return int(properties.shared_memory_per_block_optin)


class _Phase(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("weight", "bias", "next_norm", "input", "output")),
        *((name, ctypes.c_int) for name in ("kind", "outputs", "chunks", "slices", "slice_chunks")),
        *((name, ctypes.c_int) for name in ("tiles", "tiles_before", "starts_at")),
    )


class _Chain(ctypes.Structure):
    _fields_ = (
        ("phases", _Phase * MOST_PHASES),
        *((name, ctypes.c_void_p) for name in ("starts", "stream", "scaled", "squares", "partials")),
        ("barrier", ctypes.c_void_p),
        *((name, ctypes.c_int) for name in ("first", "end", "rows", "stages", "stage_bytes")),
        *((name, ctypes.c_int) for name in ("squares_stride",)),
        ("eps", ctypes.c_float),
    )


@dataclass(frozen=True, slots=True)
class ChainBuffers:
    """Static tensors of one bucket that the chain reads and writes; partials are scratch.

    squares: as many as tiles of 16 outputs for each row; barrier: 0 at first.
    """

    x: Tensor
    scaled: Tensor
    squares: Tensor
    qkv: Tensor
    attended: Tensor
    gated: Tensor
    logits: Tensor
    partials: Tensor
    barrier: Tensor


class ChainProducts:
    """All products of one bucket's step: one launch before the first attention, one after each.

    ChainError where the kernel cannot be built; the caller asked `why_no_device` and `why_no_shape` before.
    """

    def __init__(self, weights: StepWeights, buffers: ChainBuffers, tile: ChainTile) -> None:
        config, device = weights.config, buffers.x.device
        processors = int(torch.cuda.get_device_properties(device).multi_processor_count)
        self._weights, self._buffers, self._tile = weights, buffers, tile
        self._shape = ChainShape.of(config, tile.down_chunks, is_down_divided=tile.is_down_divided)
        row_tiles = row_tiles_of(len(buffers.x))
        cluster = cluster_of(row_tiles)
        self._threads = threads_of(row_tiles, cluster)
        board, self._stage_bytes = board_bytes(row_tiles, cluster), self._shape.stage_bytes(cluster)
        self.stages = min(tile.stages, (most_shared_bytes(device) - board) // self._stage_bytes, MOST_STAGES)
        self._shared_bytes = board + self.stages * self._stage_bytes
        if self._shape.down.slices * 8 * row_tiles * config.hidden > buffers.partials.numel():
            raise ChainShapeError(f"ffn ({config.ffn}) leaves more partial sums than there is room for")
        self.kernel = built_kernel(self._shape.chunks_per_warp(cluster), row_tiles, device)
        self.kernel.allow_shared_bytes(self._shared_bytes)
        clusters = processors // cluster
        if cluster > 1:
            # Blocks wait for one another, so all must be there; a device may have an odd processor somewhere.
            held = self.kernel.clusters_at_once(clusters * cluster, self._threads, self._shared_bytes)
            clusters = min(clusters, held)
        if clusters == 0:
            raise ChainShapeError(f"the device has no room for a cluster of {cluster} blocks")
        self._blocks = clusters * cluster
        starts = divide_all(self._shape, clusters)
        self._starts_at = {name: index * (clusters + 1) for index, name in enumerate(starts)}
        self._starts = torch.tensor(list(starts.values()), dtype=torch.int32, device=device)
        self._launches = [self._described(number) for number in range(config.layers + 1)]

    def launch(self, number: int, *, is_early: bool) -> None:
        """0: qkv of layer 0. n: from o of layer n - 1 to qkv of layer n, or to the head."""
        chain = self._launches[number]
        self.kernel.launch(chain, self._blocks, self._threads, self._shared_bytes, is_early=is_early)

    def _described(self, number: int) -> _Chain:
        buffers, layers, shape = self._buffers, self._weights.layers, self._shape
        is_last, phases = number == len(layers), len(shape.phases)
        chain = _Chain(
            starts=self._starts.data_ptr(), stream=buffers.x.data_ptr(), scaled=buffers.scaled.data_ptr(),
            squares=buffers.squares.data_ptr(), partials=buffers.partials.data_ptr(),
            barrier=buffers.barrier.data_ptr(), first=0 if number else phases - 1, end=phases,
            rows=len(buffers.x), stages=self.stages, stage_bytes=self._stage_bytes,
            squares_stride=squares_stride(self._weights.config), eps=self._weights.config.rms_eps,
        )  # fmt: skip
        before = layers[max(number - 1, 0)]
        next_norm = self._weights.norm if is_last else layers[number].attn_norm
        made = [
            self._phase("o", before.o, buffers.attended, None, before.ffn_norm),
            self._phase("gate_up", before.gate_up, buffers.scaled, buffers.gated),
            self._phase("down", before.down, buffers.gated, None, next_norm),
        ]
        if shape.total is not None:
            made.append(self._phase("total", None, buffers.gated, None, next_norm))
        made.append(self._last_phase(None if is_last else layers[number], number))
        for index, phase in enumerate(made):
            chain.phases[index] = phase
        return chain

    def _last_phase(self, layer: StepLayer | None, number: int) -> _Phase:
        """qkv of `layer`, or the head; the embedding leaves one sum of squares for the first."""
        buffers = self._buffers
        if layer is None:
            made = self._phase("head", self._weights.head, buffers.scaled, buffers.logits)
        else:
            made = self._phase("qkv", layer.qkv, buffers.scaled, buffers.qkv)
            made.bias = None if layer.qkv_bias is None else layer.qkv_bias.data_ptr()
        if number == 0:
            made.tiles_before = 1
        return made

    def _phase(
        self,
        name: str,
        weight: Tensor | None,
        source: Tensor,
        output: Tensor | None,
        next_norm: Tensor | None = None,
    ) -> _Phase:
        shape: PhaseShape = getattr(self._shape, name)
        is_normed = source is self._buffers.scaled
        return _Phase(
            weight=_pointer(weight), bias=None, input=source.data_ptr(), next_norm=_pointer(next_norm),
            output=_pointer(output), kind=int(shape.kind), outputs=shape.outputs, chunks=shape.chunks,
            slices=shape.slices, slice_chunks=shape.slice_chunks, tiles=shape.tiles,
            tiles_before=self._shape.o.tiles if is_normed else 0, starts_at=self._starts_at[name],
        )  # fmt: skip


def _pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def built_kernel(chunks_per_warp: int, row_tiles: int, device: torch.device) -> Kernel:
    """Compiled for the device now, or read from the cache. ChainError."""
    cluster = cluster_of(row_tiles)
    defines = {
        "CHUNKS_PER_WARP": chunks_per_warp,
        "ROW_TILES": row_tiles,
        "CLUSTER": cluster,
        "CHAIN_BYTES": ctypes.sizeof(_Chain),
        "BOARD_BYTES_HERE": board_bytes(row_tiles, cluster),
    }
    capability = torch.cuda.get_device_capability(device)
    return Kernel(machine_code("chain.cu", defines, capability), "chain", device)
