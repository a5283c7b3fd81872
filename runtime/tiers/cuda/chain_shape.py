"""How the products between two attentions are cut into units and divided among processors: plain numbers.

The other side of these numbers is src/phase.cuh.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from runtime.model.config import ModelConfig

MOST_ROWS: Final = 32
"""Rows of the batch: a warp holds its part of them in registers."""
MOST_CHUNKS_PER_WARP: Final = 8
"""Chunks of a tile's K that one warp multiplies: their weights and rows are in its registers."""
WARPS: Final = 8
"""Those that multiply."""
SUMS: Final = 2
TILE: Final = 16
CHUNK: Final = 32
MOST_PHASES: Final = 5
MOST_STAGES: Final = 16


class Kind(IntEnum):
    """What is done with a product."""

    PLAIN = 0
    GATED = 1
    STREAM = 2
    LOGITS = 3
    PARTIAL = 4
    SUM = 5


@dataclass(frozen=True, slots=True)
class PhaseShape:
    """One product: tiles of 16 weight rows; K in chunks of 32, of which a slice has slice_chunks at most.

    PARTIAL: a processor takes single slices of a tile, otherwise all of them. SUM multiplies nothing.
    """

    kind: Kind
    outputs: int
    inputs: int
    slice_chunks: int

    @property
    def chunks(self) -> int:
        return self.inputs // CHUNK

    @property
    def tiles(self) -> int:
        return self.outputs * (2 if self.kind == Kind.GATED else 1) // TILE

    @property
    def slices(self) -> int:
        return -(-self.chunks // self.slice_chunks)

    @property
    def items(self) -> int:
        return self.tiles * (self.slices if self.kind == Kind.PARTIAL else 1)

    @property
    def item_bytes(self) -> int:
        """Of weights."""
        chunks = self.slice_chunks if self.kind == Kind.PARTIAL else self.chunks
        return 0 if self.kind == Kind.SUM else TILE * chunks * CHUNK * 2

    def unit_bytes(self, cluster: int) -> int:
        """Of a block's share of a slice of a tile in shared memory; a row takes an odd number of chunks."""
        return TILE * (-(-self.slice_chunks // cluster) | 1) * CHUNK * 2


@dataclass(frozen=True, slots=True)
class ChainShape:
    """The products of a layer, and the head. total: where the slices of `down` are added up, if divided."""

    o: PhaseShape
    gate_up: PhaseShape
    down: PhaseShape
    total: PhaseShape | None
    qkv: PhaseShape
    head: PhaseShape

    @classmethod
    def of(cls, config: ModelConfig, down_chunks: int, *, is_down_divided: bool) -> "ChainShape":
        hidden = config.hidden // CHUNK
        longest = max(hidden, config.q_width // CHUNK)
        down = config.ffn // CHUNK
        slice_chunks = -(-down // -(-down // min(down_chunks, longest)))
        qkv = config.q_width + 2 * config.kv_width
        is_divided = is_down_divided and slice_chunks < down
        down_kind = Kind.PARTIAL if is_divided else Kind.STREAM
        total = PhaseShape(Kind.SUM, config.hidden, config.ffn, slice_chunks)
        return cls(
            o=PhaseShape(Kind.STREAM, config.hidden, config.q_width, config.q_width // CHUNK),
            gate_up=PhaseShape(Kind.GATED, config.ffn, config.hidden, hidden),
            down=PhaseShape(down_kind, config.hidden, config.ffn, slice_chunks),
            total=total if is_divided else None,
            qkv=PhaseShape(Kind.PLAIN, qkv, config.hidden, hidden),
            head=PhaseShape(Kind.LOGITS, config.vocab, config.hidden, hidden),
        )

    @property
    def phases(self) -> tuple[PhaseShape, ...]:
        """All of them but `head`, in their order."""
        held = (self.o, self.gate_up, self.down, self.total, self.qkv)
        return tuple(phase for phase in held if phase is not None)

    def chunks_per_warp(self, cluster: int) -> int:
        """Of a block's share, where WARPS / cluster warps divide K and cluster of them divide the rows."""
        share = -(-max(phase.slice_chunks for phase in self.phases) // cluster)
        return -(-share // (WARPS // cluster))

    def stage_bytes(self, cluster: int) -> int:
        return max(phase.unit_bytes(cluster) for phase in self.phases)


def cluster_of(row_tiles: int) -> int:
    """Processors that share each tile: each reads its part of K of weights and rows, and finishes some rows.

    One alone reads all of up to 8 rows quickly enough, and its finishers could not divide them by tiles.
    """
    return 2 if row_tiles > 1 else 1


def threads_of(row_tiles: int, cluster: int) -> int:
    """Of a block: those that multiply, those that finish and one warp that copies."""
    finishing = 2 * row_tiles // cluster if cluster > 1 else 2
    return 32 * (WARPS + finishing + 1)


def board_bytes(row_tiles: int, cluster: int) -> int:
    """What precedes the ring in shared memory: barriers, ranges, factors and sums."""
    rows, passed = 8 * row_tiles, 4 if cluster > 1 else 1
    barriers = 8 * (2 * MOST_STAGES + 2 * SUMS + passed)
    before = barriers + 4 * 2 * MOST_PHASES + 4 * rows // cluster
    sums = SUMS * WARPS // cluster * rows * (TILE + 4) * 4
    size = before + -before % 16 + sums + passed * rows // cluster * TILE * 4
    return -(-size // 128) * 128


def row_tiles_of(rows: int) -> int:
    """Tiles of 8 rows, as a power of two."""
    return 1 << (-(-rows // 8) - 1).bit_length()


def squares_stride(config: ModelConfig) -> int:
    """Sums of squares of one row, one for each tile of the stream; they are read four at a time."""
    return -(-config.hidden // (4 * TILE)) * 4


def why_no_shape(config: ModelConfig, rows: int, shared_bytes: int) -> str | None:
    """What in the model's shape or the batch does not fit the kernel; None if nothing.

    shared_bytes: what one block may have of the device.
    """
    for name, width, step in (
        ("hidden", config.hidden, CHUNK),
        ("heads times head_dim", config.q_width, CHUNK),
        ("ffn", config.ffn, CHUNK),
        ("kv_heads times head_dim", config.kv_width, TILE // 2),
        ("vocab", config.vocab, TILE),
    ):
        if width % step:
            return f"{name} ({width}) is not a multiple of {step}"
    if rows > MOST_ROWS:
        return f"{rows} rows, {MOST_ROWS} is the most"
    shape, row_tiles = ChainShape.of(config, config.ffn, is_down_divided=False), row_tiles_of(rows)
    cluster = cluster_of(row_tiles)
    if shape.chunks_per_warp(cluster) > MOST_CHUNKS_PER_WARP:
        return f"hidden ({config.hidden}) is more than {MOST_CHUNKS_PER_WARP * WARPS * CHUNK}"
    unit_bytes = shape.stage_bytes(cluster)
    if board_bytes(row_tiles, cluster) + 2 * unit_bytes > shared_bytes:
        return f"two units of {unit_bytes} bytes do not fit {shared_bytes} bytes of shared memory"
    return None


def divide(loads: Sequence[int], items: int, item_bytes: int) -> list[int]:
    """First item of each cluster, and the end: whoever has the least to read so far takes the next one."""
    heap = [(load, 0, index) for index, load in enumerate(loads)]
    heapq.heapify(heap)
    counts = [0] * len(loads)
    for _ in range(items):
        load, count, index = heap[0]
        heapq.heapreplace(heap, (load + item_bytes, count + 1, index))
        counts[index] += 1
    starts = [0]
    for count in counts:
        starts.append(starts[-1] + count)
    return starts


def divide_all(shape: ChainShape, clusters: int) -> dict[str, list[int]]:
    """Of every phase by name; gate_up, whose items are many and small, evens out what the others leave."""
    loads = [0] * clusters
    made: dict[str, list[int]] = {}
    for name in ("total", "down", "o", "qkv", "gate_up"):
        phase: PhaseShape | None = getattr(shape, name)
        if phase is None:
            continue
        starts = divide(loads, phase.items, phase.item_bytes)
        loads = [load + (starts[i + 1] - starts[i]) * phase.item_bytes for i, load in enumerate(loads)]
        made[name] = starts
    # In the last launch the head stands where qkv stands in the others.
    without = [
        load - (made["qkv"][i + 1] - made["qkv"][i]) * shape.qkv.item_bytes for i, load in enumerate(loads)
    ]
    made["head"] = divide(without, shape.head.items, shape.head.item_bytes)
    return made
