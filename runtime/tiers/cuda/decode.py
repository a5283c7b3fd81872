"""One decode step as a CUDA graph: everything from the token ids to the logits, no host in between."""

import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import torch
from torch import Tensor

from runtime.model.config import ModelConfig
from runtime.model.decoder_weights import DecoderWeights
from runtime.model.forward_batch import KVStore, Span
from runtime.tiers.cuda import attention_kernels, linear_kernels
from runtime.tiers.cuda.chain import ChainBuffers, ChainProducts, why_no_chain
from runtime.tiers.cuda.chain_shape import squares_stride
from runtime.tiers.cuda.driver import prefer_shared_memory
from runtime.tiers.cuda.errors import ChainError, ChainShapeError
from runtime.tiers.cuda.plan import (
    BUCKETS,
    PARTS,
    PlanLayout,
    StepPlan,
    StepTooLargeError,
    bucket_for,
    tile_rows,
)
from runtime.tiers.cuda.shapes import (
    ChainTile,
    LinearTile,
    StepTiles,
    chain_tile_for,
    is_chain_faster,
    power_of_two,
    tiles_for,
)
from runtime.tiers.cuda.step_weights import StepLayer, StepWeights

_SUMS: Final = 1 << 22
"""float32 for the partial sums of split products."""
SMALLEST_BLOCK_TOKENS: Final = 16
"""The contract's; tables are as long as the model's context in blocks of this size."""
STARTS_EARLY: bool = True
"""Kernels begin before the one before them has ended (programmatic dependent launch, from capability 9.0)."""
Products = Literal["auto", "chain", "triton"]
"""Who multiplies: one kernel of ours between two attentions, or one Triton kernel for each product."""


class CudaDecoder:
    """Graphs of the decode step of one model, one per bucket of rows; they serve any KV store.

    products: `chain` raises ChainError where its kernel does not fit; `auto` takes Triton's there, and where
    they are faster.
    On a CPU the same kernels run under Triton's interpreter, without a graph: that is for tests.
    """

    def __init__(
        self, weights: DecoderWeights, buckets: Sequence[int] = BUCKETS, products: Products = "auto"
    ) -> None:
        config, device = weights.config, weights.placement.device
        processors = _processors(device)
        self.most_rows = max(buckets)
        self.buckets = tuple(buckets)
        lines = max(tile_rows(bucket, config.heads // config.kv_heads) for bucket in buckets)
        scratch = _Scratch(config, device, lines * most_items(config, processors, self.most_rows))
        tensors = StepWeights.of(weights)
        self._steps = {bucket: _BucketStep(tensors, bucket, scratch, processors) for bucket in buckets}
        self.lost: dict[int, str] = {}
        """Why a bucket's products are Triton's where one kernel was wanted."""
        for bucket, step in self._steps.items() if products != "triton" else ():
            if products == "auto" and not is_chain_faster(config, bucket):
                self.lost[bucket] = "measured faster for this shape"
                continue
            try:
                step.take_chain(chain_tile_for(bucket))
            except ChainError as error:
                if products == "chain":
                    raise
                self.lost[bucket] = str(error)

    def step(self, spans: Sequence[Span], tables: Sequence[Sequence[int]], kv: KVStore) -> Tensor:
        """Logits [len(spans), vocab] float32 of one token each; writes their KV.

        StepTooLargeError where the step fits no graph: nothing was computed then.
        """
        bucket = bucket_for(len(spans), tuple(self._steps))
        if bucket is None:
            raise StepTooLargeError(f"{len(spans)} rows, {self.most_rows} is the most")
        return self._steps[bucket].run(spans, tables, kv)

    def capture(self, bucket: int) -> None:
        """Compiles the kernels of a bucket and captures its graph; otherwise its first step does."""
        self._steps[bucket].capture()


class _Scratch:
    """What programs of one launch leave for the next; graphs run one after the other and share it."""

    def __init__(self, config: ModelConfig, device: torch.device, lines: int) -> None:
        places = config.kv_heads * lines
        self.partial_out = torch.empty(places * config.head_dim, device=device)
        self.partial_lse = torch.empty(places, device=device)
        self.sums = torch.empty(_SUMS, device=device)
        self.counters = torch.zeros(4096, dtype=torch.int32, device=device)
        self.barrier = torch.zeros(1, dtype=torch.int32, device=device)


@dataclass(frozen=True, slots=True)
class _Around:
    """What surrounds a product. tiles_before: programs that left sums of squares of x, 0 without a norm.

    next_norm: given where the product is added to the residual stream.
    """

    tiles_before: int = 0
    bias: Tensor | None = None
    next_norm: Tensor | None = None


class _BucketStep:
    """Static tensors and the graph of one bucket."""

    def __init__(self, weights: StepWeights, bucket: int, scratch: _Scratch, processors: int) -> None:
        config, device, dtype = weights.config, weights.head.device, weights.head.dtype
        self._weights, self._bucket, self._scratch = weights, bucket, scratch
        self._bases = torch.zeros(config.layers, dtype=torch.int64, device=device)
        self.tiles: StepTiles = tiles_for(config, bucket, dtype.itemsize)
        self._lines_m = tile_rows(bucket, config.heads // config.kv_heads)
        self._layout = PlanLayout(
            rows=bucket,
            items=most_items(config, processors, bucket),
            table_blocks=-(-config.context_tokens // SMALLEST_BLOCK_TOKENS),
            rows_per_item=self._lines_m * config.kv_heads // config.heads,
            chunk_tokens=self.tiles.attention.chunk_tokens,
        )
        is_cuda = device.type == "cuda"
        self._can_start_early = is_cuda and torch.cuda.get_device_capability(device) >= (9, 0)
        self._host = torch.zeros(self._layout.size, dtype=torch.int32, pin_memory=is_cuda)
        self._device_plan = torch.zeros(self._layout.size, dtype=torch.int32, device=device)
        self._plan = StepPlan(self._layout, self._host.numpy())
        self._copied = torch.cuda.Event() if is_cuda else None  # type: ignore[no-untyped-call] # torch's own
        self._graph: torch.cuda.CUDAGraph | None = None
        self._is_captured = False
        self._chain: ChainProducts | None = None
        self._store: weakref.ref[KVStore] | None = None

        def static(width: int, kind: torch.dtype = dtype) -> Tensor:
            return torch.zeros(bucket, width, dtype=kind, device=device)

        self._x, self._scaled = static(config.hidden), static(config.hidden)
        self._squares = torch.zeros(-(-config.hidden // 16) * 64, device=device)
        self._qkv = static(config.q_width + 2 * config.kv_width)
        self._rotations = static(config.head_dim, torch.float32)
        self._attended, self._gated = static(config.q_width), static(config.ffn)
        self._logits = static(config.vocab, torch.float32)

    def take_chain(self, tile: ChainTile) -> None:
        """The products of graphs captured from now on are one kernel's. ChainError where it does not fit."""
        config, scratch = self._weights.config, self._scratch
        reason = why_no_chain(config, self._x)
        if reason is not None:
            raise ChainShapeError(reason)
        buffers = ChainBuffers(
            x=self._x, scaled=self._scaled, squares=self._squares, qkv=self._qkv, attended=self._attended,
            gated=self._gated, logits=self._logits, partials=scratch.sums, barrier=scratch.barrier,
        )  # fmt: skip
        self._chain = ChainProducts(self._weights, buffers, tile)
        self.tiles = replace(self.tiles, attention=tile.attention)
        self._layout = replace(self._layout, chunk_tokens=tile.attention.chunk_tokens)
        self._plan = StepPlan(self._layout, self._host.numpy())

    def capture(self) -> None:
        """One row at position 0 of a store that is nobody's: a graph serves any store."""
        config, x = self._weights.config, self._x
        shape = (SMALLEST_BLOCK_TOKENS, 2, config.kv_heads, config.head_dim)
        nobodys = torch.zeros(shape, dtype=x.dtype, device=x.device)
        self._point_at([nobodys] * config.layers)
        self._load([Span([0], 0)], [(0,)], SMALLEST_BLOCK_TOKENS)
        self._launch()  # compiles; nothing may be compiled while a graph is captured
        if x.device.type == "cuda":
            torch.cuda.synchronize()
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._launch()
        self._store, self._is_captured = None, True

    def run(self, spans: Sequence[Span], tables: Sequence[Sequence[int]], kv: KVStore) -> Tensor:
        if not self._is_captured:
            self.capture()
        if self._store is None or self._store() is not kv:
            self._point_at(kv.storage.layers)
            self._store = weakref.ref(kv)
        self._load(spans, tables, kv.storage.block_tokens)
        if self._graph is None:
            self._launch()
        else:
            self._graph.replay()
        # The static tensor is the next step's, the copy is the caller's.
        return self._logits[: len(spans)].clone()

    def _point_at(self, layers: Sequence[Tensor]) -> None:
        """The kernels find the keys in steps of 16 bytes from a static tensor."""
        steps = [layer.data_ptr() - self._qkv.data_ptr() for layer in layers]
        if any(step % 16 for step in steps):
            raise ValueError("KV tensors must begin at multiples of 16 bytes")
        self._bases.copy_(torch.tensor([step // 16 for step in steps]))
        self._plan.forget()

    def _load(self, spans: Sequence[Span], tables: Sequence[Sequence[int]], block_tokens: int) -> None:
        if self._copied is not None:
            self._copied.synchronize()  # the last step's copy may still be reading the buffer
        changed = self._plan.update(spans, tables, block_tokens)
        self._device_plan[:changed].copy_(self._host[:changed], non_blocking=True)
        if self._copied is not None:
            self._copied.record()

    def _launch(self) -> None:
        config, weights = self._weights.config, self._weights
        attention_kernels.embed[(self._bucket,)](
            weights.table, weights.wavelengths, self._device_plan, weights.layers[0].attn_norm, self._x,
            self._scaled, self._squares, self._rotations, ROWS=self._bucket, HIDDEN=config.hidden,
            HEAD_DIM=config.head_dim, BLOCK_H=power_of_two(config.hidden),
            BLOCK_D=power_of_two(config.head_dim, 32),
            SQUARES_STRIDE=1 if self._chain is None else squares_stride(config),
        )  # fmt: skip
        if self._chain is None:
            self._launch_layers()
        else:
            self._launch_chain(self._chain)

    def _launch_chain(self, chain: ChainProducts) -> None:
        is_early = self._early()["STARTS_EARLY"]
        chain.launch(0, is_early=is_early)
        for index, layer in enumerate(self._weights.layers):
            for kernel in self._attend(index, layer):
                # The chain can then begin beside it: memory is not divided anew on a processor that works.
                prefer_shared_memory(kernel.function)
            chain.launch(index + 1, is_early=is_early)

    def _launch_layers(self) -> None:
        weights, tiles = self._weights, 1
        next_norms = [*(layer.attn_norm for layer in weights.layers[1:]), weights.norm]
        for index, (layer, next_norm) in enumerate(zip(weights.layers, next_norms, strict=True)):
            self._linear("qkv", self._scaled, layer.qkv, self._qkv, _Around(tiles, layer.qkv_bias))
            self._attend(index, layer)
            stream = _Around(next_norm=layer.ffn_norm)
            tiles = self._linear("o", self._attended, layer.o, self._x, stream)
            self._linear("gate_up", self._scaled, layer.gate_up, self._gated, _Around(tiles))
            stream = _Around(next_norm=next_norm)
            tiles = self._linear("down", self._gated, layer.down, self._x, stream)
        self._linear("head", self._scaled, weights.head, self._logits, _Around(tiles))

    def _attend(self, index: int, layer: StepLayer) -> tuple[Any, Any]:
        """The two kernels as Triton compiled them."""
        config, layout, scratch = self._weights.config, self._layout, self._scratch
        tile = self.tiles.attention
        shape = {
            "ROWS_PER_ITEM": layout.rows_per_item, "HEADS": config.heads, "KV_HEADS": config.kv_heads,
            "HEAD_DIM": config.head_dim, "BLOCK_M": self._lines_m,
            "BLOCK_D": power_of_two(config.head_dim, 32), "RELEASES_FIRST": tile.releases_first,
        }  # fmt: skip
        items = attention_kernels.attend_items[(layout.items, config.kv_heads)](
            self._qkv, self._rotations, self._or_x(layer.qk_norm), self._bases, self._device_plan,
            scratch.partial_out, scratch.partial_lse, layer.gate_up, index, config.rms_eps,
            1 / math.sqrt(config.head_dim), ROWS=self._bucket, TABLES_AT=layout.tables_at,
            TABLE_BLOCKS=layout.table_blocks, ITEMS_AT=layout.items_at, BLOCK_S=tile.keys,
            HAS_NORMS=layer.qk_norm is not None, KEYS_FIRST=tile.keys_first,
            AHEAD_LINES=min(tile.ahead_bytes, layer.gate_up.nbytes) // 128 // 256 * 256,
            num_warps=tile.warps, num_stages=tile.stages, **shape, **self._early(),
        )  # fmt: skip
        merge = attention_kernels.merge_items[(self._bucket, config.heads)](
            self._device_plan, scratch.partial_out, scratch.partial_lse, self._attended,
            COUNTS_AT=layout.counts_at, PARTS_AT=layout.parts_at, PARTS=PARTS, BLOCK_P=tile.parts,
            num_warps=tile.merge_warps, **shape, **self._early(),
        )  # fmt: skip
        return items, merge

    def _linear(self, product: str, x: Tensor, weight: Tensor, out: Tensor, around: _Around) -> int:
        """Returns how many programs left sums of squares, for the product after this one."""
        outputs, inputs = out.shape[1], x.shape[1]
        tile: LinearTile = getattr(self.tiles, product)
        early = self._early()
        programs = -(-outputs // tile.block_n)
        share = -(-inputs // tile.splits)
        splits = -(-inputs // (share + -share % tile.block_k))  # fewer where whole steps of block_k reach
        linear_kernels.linear[(programs, splits)](
            x, weight, self._or_x(around.bias), self._squares, self._x, out, self._scaled,
            self._or_x(around.next_norm), self._scratch.sums, self._scratch.counters,
            self._weights.config.rms_eps, self._bucket, around.tiles_before, N=outputs, K=inputs,
            HAS_NORM=around.tiles_before > 0, BLOCK_T=power_of_two(inputs) // 16,
            HAS_BIAS=around.bias is not None, IS_GATED=product == "gate_up",
            IS_STREAM=around.next_norm is not None, IS_TURNED=tile.is_turned,
            BLOCK_M=power_of_two(self._bucket), BLOCK_N=tile.block_n, BLOCK_K=tile.block_k, SPLITS=splits,
            LINES=tile.lines if early["STARTS_EARLY"] else 0, RELEASES_FIRST=tile.releases_first,
            num_warps=tile.warps, num_stages=tile.stages, **early,
        )  # fmt: skip
        return programs

    def _or_x(self, tensor: Tensor | None) -> Tensor:
        """A kernel's pointer that it will not follow must still be one."""
        return self._x if tensor is None else tensor

    def _early(self) -> dict[str, bool]:
        """Launch option and constexpr of kernels that may start before the one before them has ended."""
        if STARTS_EARLY and self._can_start_early:
            return {"STARTS_EARLY": True, "launch_pdl": True}
        return {"STARTS_EARLY": False}


def most_items(config: ModelConfig, processors: int, bucket: int) -> int:
    """Work items of a step: about four programs for each processor, and never fewer than two for each row."""
    return max(-(-4 * processors // config.kv_heads), 2 * bucket)


def _processors(device: torch.device) -> int:
    if device.type != "cuda":
        return 4
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
