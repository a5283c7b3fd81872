"""How a decode step is cut into programs: plain numbers, by measurement (ADR 0014)."""

from dataclasses import dataclass, replace
from typing import Final

from runtime.model.config import ModelConfig


@dataclass(frozen=True, slots=True)
class LinearTile:
    """block_n outputs a program; K in steps of block_k, divided among `splits` programs.

    lines: how many 128-byte lines of each of its weight rows a program asks L2 for while the kernel before it
    ends. releases_first: the kernel after it may start before that end, too. is_turned: weights are the left
    operand of the matrix units (tiles of 64 outputs or more), else the right one.
    """

    block_n: int
    block_k: int
    splits: int = 1
    warps: int = 4
    stages: int = 4
    lines: int = 0
    releases_first: bool = False
    is_turned: bool = False


@dataclass(frozen=True, slots=True)
class AttentionTile:
    """Keys read at once; partials merged at once.

    chunk_tokens: keys of a work item at least, where there are as many. keys_first: an item's first keys are
    read before the kernel before has ended; often they are all.
    ahead_bytes: how much of gate_up's weight programs without work ask L2 for. releases_first: as in
    LinearTile.
    """

    keys: int = 64
    warps: int = 4
    stages: int = 2
    parts: int = 32
    merge_warps: int = 4
    ahead_bytes: int = 0
    releases_first: bool = False
    keys_first: bool = False
    chunk_tokens: int = 64


@dataclass(frozen=True, slots=True)
class ChainTile:
    """The products between two attentions as one kernel: its ring of weight units and what surrounds it.

    down_chunks: chunks of 32 of the K of `down` in one unit, at most. is_down_divided: units of one tile go
    to several processors, which leaves their sum to a phase of its own. attention: the tile beside it.
    """

    stages: int
    down_chunks: int
    is_down_divided: bool
    attention: AttentionTile = AttentionTile()


@dataclass(frozen=True, slots=True)
class StepTiles:
    """The five products and the attention of one bucket."""

    qkv: LinearTile
    o: LinearTile
    gate_up: LinearTile
    down: LinearTile
    head: LinearTile
    attention: AttentionTile = AttentionTile()


def power_of_two(value: int, least: int = 16) -> int:
    """The smallest power of two that is not below `value` and `least`."""
    return max(least, 1 << (value - 1).bit_length())


def lines_of(inputs: int, splits: int) -> int:
    """Lines of a program's share of one weight row, as a power of two, 128 at most."""
    return min(128, power_of_two(-(-inputs // splits // 64), 1))


_LARGE_FEW: Final = StepTiles(
    qkv=LinearTile(128, 64, 3, 4, 6, 8, False, True),
    o=LinearTile(64, 128, 3, 4, 4, 8, False, True),
    gate_up=LinearTile(64, 128, 1, 4, 3, 0, True, True),
    down=LinearTile(128, 64, 5, 8, 6, 8, False, True),
    head=LinearTile(64, 128, 1, 4, 4, 0, False, True),
    attention=AttentionTile(parts=64, merge_warps=2),
)
_LARGE_MANY: Final = StepTiles(
    qkv=LinearTile(64, 128, 3, 4, 4, 4, False, True),
    o=LinearTile(64, 128, 2, 4, 4, 16, False, True),
    gate_up=LinearTile(64, 64, 1, 4, 4, 0, True, True),
    down=LinearTile(32, 128, 5, 4, 6, 8, True, False),
    head=LinearTile(64, 128, 1, 4, 4, 16, True, True),
    attention=AttentionTile(64, 4, 1, 64, 2, 8 << 20, True),
)
_SMALL: Final = StepTiles(
    qkv=LinearTile(32, 64, 1, 4, 4, 16, False, False),
    o=LinearTile(16, 64, 1, 4, 4, 16, False, False),
    gate_up=LinearTile(32, 64, 1, 4, 4, 16, True, False),
    down=LinearTile(32, 128, 4, 4, 4, 8, False, False),
    head=LinearTile(128, 64, 1, 4, 4, 0, True, True),
    attention=AttentionTile(64, 4, 1, 64, 1, 8 << 20, False),
)
_WIDE_VALUES: Final = StepTiles(
    qkv=LinearTile(16, 32, stages=3),
    o=LinearTile(16, 32, stages=3),
    gate_up=LinearTile(16, 32, stages=3),
    down=LinearTile(16, 32, stages=3),
    head=LinearTile(32, 32, stages=3),
    attention=AttentionTile(keys=32, stages=1, parts=16),
)
"""float32 is for comparison: small tiles that fit everywhere."""


_BESIDE_CHAIN: Final = AttentionTile(64, 4, 1, 64, 2, 0, True)
_CHAIN_ONE: Final = ChainTile(3, 26, True, _BESIDE_CHAIN)
_CHAIN_FEW: Final = ChainTile(3, 26, True, replace(_BESIDE_CHAIN, keys_first=True))

_CHAIN_MANY: Final = ChainTile(5, 40, True, AttentionTile(128, 4, 1, 32, 1, 0, True, chunk_tokens=128))


def chain_tile_for(bucket: int) -> ChainTile:
    """What was fastest on an H200 with 1.5 B weights."""
    if bucket > 8:
        return _CHAIN_MANY
    return _CHAIN_ONE if bucket == 1 else _CHAIN_FEW


def is_chain_faster(config: ModelConfig, bucket: int) -> bool:
    """Than Triton's products: measured for hidden 1,536 up to 32 rows; not for hidden 576.

    With small weights the barriers cost more than the products.
    """
    return config.hidden >= 1024 and bucket <= 32


def tiles_for(config: ModelConfig, bucket: int, value_bytes: int) -> StepTiles:
    """What was fastest where it was measured; any model and bucket has an answer."""
    if value_bytes > 2:
        return _WIDE_VALUES
    if config.hidden < 1024:
        return _SMALL
    return _LARGE_FEW if bucket <= 16 else _LARGE_MANY
