"""How the products between two attentions are cut and divided: nothing is left out, nobody has much more."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.model.config import ModelConfig
from runtime.tiers.cuda.chain_shape import (
    CHUNK,
    TILE,
    WARPS,
    ChainShape,
    Kind,
    board_bytes,
    cluster_of,
    divide,
    divide_all,
    row_tiles_of,
    squares_stride,
    threads_of,
    why_no_shape,
)
from runtime.tiers.cuda.nvrtc import SOURCES

QWEN2 = ModelConfig("qwen2", 1536, 28, 12, 2, 128, 8960, 151936, 1e6, 1e-6, 32768, True)
SHARED_BYTES = 227 << 10
SIZES = st.builds(
    lambda heads, dims, ffn, vocab: replace(
        QWEN2, hidden=32 * heads * dims, heads=2 * heads, head_dim=16 * dims, ffn=32 * ffn, vocab=16 * vocab
    ),
    st.integers(1, 6), st.integers(1, 6), st.integers(1, 300), st.integers(1, 500),
)  # fmt: skip


@given(st.lists(st.integers(0, 500), min_size=1, max_size=140), st.integers(0, 1500), st.integers(1, 100))
def test_every_item_goes_to_one_processor(loads: list[int], items: int, item_bytes: int) -> None:
    starts = divide(loads, items, item_bytes)
    assert len(starts) == len(loads) + 1
    assert (starts[0], starts[-1]) == (0, items)
    assert starts == sorted(starts)


@given(st.lists(st.integers(0, 500), min_size=1, max_size=140), st.integers(0, 1500), st.integers(1, 100))
def test_who_got_an_item_had_no_more_than_any_other(loads: list[int], items: int, item_bytes: int) -> None:
    starts = divide(loads, items, item_bytes)
    counts = [end - start for start, end in pairwise(starts)]
    after = [load + count * item_bytes for load, count in zip(loads, counts, strict=True)]
    for total, count in zip(after, counts, strict=True):
        assert count == 0 or total - item_bytes <= min(after)


def test_items_that_weigh_nothing_are_spread() -> None:
    assert divide([5, 5, 5], 6, 0) == [0, 2, 4, 6]


@given(SIZES, st.integers(1, 60), st.booleans(), st.integers(1, 140))
def test_the_units_of_a_phase_are_its_weight(
    config: ModelConfig, down_chunks: int, is_divided: bool, processors: int
) -> None:
    shape = ChainShape.of(config, down_chunks, is_down_divided=is_divided)
    weights = {
        "o": config.hidden * config.q_width,
        "gate_up": 2 * config.ffn * config.hidden,
        "down": config.hidden * config.ffn,
        "qkv": (config.q_width + 2 * config.kv_width) * config.hidden,
        "head": config.vocab * config.hidden,
    }
    starts = divide_all(shape, processors)
    for name, values in weights.items():
        phase = getattr(shape, name)
        assert phase.tiles * TILE * phase.chunks * CHUNK == values
        assert (phase.slices - 1) * phase.slice_chunks < phase.chunks <= phase.slices * phase.slice_chunks
        assert starts[name][-1] == phase.items
        for cluster in (1, 2):
            assert phase.unit_bytes(cluster) <= shape.stage_bytes(cluster)
            # What the warps of a cluster hold together is a whole slice.
            assert shape.chunks_per_warp(cluster) * WARPS >= phase.slice_chunks
    assert shape.down.slice_chunks <= max(down_chunks, 1)
    assert (shape.total is None) == (shape.down.kind == Kind.STREAM)
    if shape.total is not None:
        assert (shape.total.tiles, shape.total.slices) == (shape.down.tiles, shape.down.slices)
        assert starts["total"][-1] == shape.down.tiles


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"hidden": 1544}, "hidden (1544) is not a multiple of 32"),
        ({"ffn": 8976}, "ffn (8976) is not a multiple of 32"),
        ({"vocab": 151937}, "vocab (151937) is not a multiple of 16"),
        ({"heads": 3, "kv_heads": 3, "head_dim": 20}, "heads times head_dim (60) is not a multiple of 32"),
        ({"heads": 8, "kv_heads": 1, "head_dim": 12}, "kv_heads times head_dim (12) is not a multiple of 8"),
        ({"hidden": 4096}, "hidden (4096) is more than 2048"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, int], reason: str) -> None:
    assert why_no_shape(replace(QWEN2, **change), 8, SHARED_BYTES) == reason


def test_a_shape_that_fits_has_no_reason_against_it() -> None:
    assert why_no_shape(QWEN2, 16, SHARED_BYTES) is None
    assert why_no_shape(QWEN2, 32, SHARED_BYTES) is None
    assert why_no_shape(QWEN2, 33, SHARED_BYTES) == "33 rows, 32 is the most"
    assert "do not fit 101376 bytes of shared memory" in str(why_no_shape(QWEN2, 1, 99 << 10))


@pytest.mark.parametrize(("rows", "tiles"), [(1, 1), (8, 1), (9, 2), (16, 2), (17, 4), (32, 4)])
def test_rows_come_in_tiles_of_eight(rows: int, tiles: int) -> None:
    assert row_tiles_of(rows) == tiles
    cluster = cluster_of(tiles)
    assert tiles % cluster == 0
    assert board_bytes(tiles, cluster) % 128 == 0
    assert threads_of(tiles, cluster) <= 1024


@given(SIZES)
def test_sums_of_squares_are_read_four_at_a_time(config: ModelConfig) -> None:
    stride = squares_stride(config)
    assert stride % 4 == 0
    assert config.hidden // TILE <= stride < config.hidden // TILE + 4


def test_the_sources_lie_beside_the_code_and_are_short() -> None:
    names = {file.name for file in SOURCES.iterdir()}
    assert {"chain.cu", "phase.cuh", "ptx.cuh", "copy.cuh", "multiply.cuh", "finish.cuh"} <= names
    for file in SOURCES.iterdir():
        assert len(file.read_text().splitlines()) <= 400
