"""Which tiles make a whole decode step fastest: one product after the other, all others held.

Run on a machine with a CUDA device: python benchmarks/cuda/tune.py OUT.json
"""

import itertools
import json
import multiprocessing
import statistics
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from steps import BLOCK_TOKENS, PLACEMENT, QWEN2, needed_bytes, random_weights, spans_of

from runtime.model.config import ModelConfig
from runtime.model.paged_kv import PagedKV
from runtime.tiers.cuda import decode
from runtime.tiers.cuda.decode import CudaDecoder
from runtime.tiers.cuda.shapes import AttentionTile, LinearTile, StepTiles

CASES = [("qwen", QWEN2, 5, 2000, 100), ("qwen", QWEN2, 32, 2000, 100)]
ORDER = ("gate_up", "down", "attention")
SHARED_MEMORY_BYTES = 100_000
WORKERS = 15


def bucket_of(rows: int) -> int:
    """Of the graphs that are measured."""
    return 8 if rows <= 8 else 32


def sizes(config: ModelConfig, product: str) -> tuple[int, int]:
    """Outputs and inputs of a product."""
    return {
        "qkv": (config.q_width + 2 * config.kv_width, config.hidden),
        "o": (config.hidden, config.q_width),
        "gate_up": (config.ffn, config.hidden),
        "down": (config.hidden, config.ffn),
        "head": (config.vocab, config.hidden),
    }[product]


def linear_candidates(config: ModelConfig, bucket: int, product: str) -> Iterator[LinearTile]:
    """Tiles that fit twice into shared memory and divide the weight evenly."""
    outputs, inputs = sizes(config, product)
    lines_m, is_gated = max(16, bucket), product == "gate_up"
    for is_turned, block_n, block_k, splits, stages, lines in itertools.product(
        (True, False), (16, 32, 64, 128), (64, 128, 256), (1, 2, 3, 5, 7), (2, 3, 4, 6), (0, 8)
    ):
        loaded = 2 * block_k * (block_n * (2 if is_gated else 1) + lines_m)
        programs = -(-outputs // block_n) * splits
        if (
            not (20_000 <= loaded * stages <= 113_000)
            or is_turned != (block_n >= 64)
            or not 50 <= programs <= (600 if product != "head" else 5000)
            or inputs % (splits * block_k)
            or (product == "head" and (splits > 1 or not is_turned))
        ):
            continue
        first = product == "gate_up" and lines == 0
        yield LinearTile(block_n, block_k, splits, 4, stages, lines, first, is_turned)


def variants(best: LinearTile) -> Iterator[LinearTile]:
    """The same tile with less asked for ahead, or with the next kernel let go first."""
    for lines, first in itertools.product((0, max(1, best.lines // 2), best.lines), (False, True)):
        yield replace(best, lines=lines, releases_first=first)
    yield replace(best, warps=8)


def attention_candidates() -> Iterator[AttentionTile]:
    """Of the attention and of its merge."""
    for megabytes in (0, 8, 24):
        yield AttentionTile(ahead_bytes=megabytes << 20)
        yield AttentionTile(ahead_bytes=megabytes << 20, releases_first=True)
    for keys, warps, stages in itertools.product((64, 128), (4, 8), (1, 2)):
        yield AttentionTile(keys, warps, stages)
    for parts, merge_warps in itertools.product((32, 64), (1, 2, 4)):
        yield AttentionTile(parts=parts, merge_warps=merge_warps)


def merged_attention(best: AttentionTile, tile: AttentionTile) -> AttentionTile:
    """Its two kernels are tuned in turn: what a candidate leaves at the default stays as it is."""
    changed = {
        field: value for field, value in asdict(tile).items() if value != asdict(AttentionTile())[field]
    }
    return replace(best, **changed)


def candidates(config: ModelConfig, bucket: int, product: str) -> list[Any]:
    """Of a product, or of the attention."""
    if product == "attention":
        return list(attention_candidates())
    return list(linear_candidates(config, bucket, product))


def decoder_of(config: ModelConfig, bucket: int) -> CudaDecoder:
    return CudaDecoder(random_weights(config), (bucket,), "triton")


def compile_part(part: list[tuple[str, int, str, Any]]) -> None:
    """Fills the cache of compiled kernels; runs in a process of its own."""
    made: dict[tuple[str, int], Any] = {}
    configs = {name: config for name, config, *_ in CASES}
    for name, rows, product, tile in part:
        bucket = bucket_of(rows)
        if (name, bucket) not in made:
            made[name, bucket] = decoder_of(replace(configs[name], layers=1), bucket)
            made[name, bucket].capture(bucket)
        step = made[name, bucket]._steps[bucket]
        before = step.tiles
        step.tiles = replace(before, **{product: tile})
        try:
            step._launch()
            torch.cuda.synchronize()
        except Exception as error:
            sys.stderr.write(f"{name} {rows} {product} {tile}: {error}\n")
        step.tiles = before


def replay_us(step: Any, tiles: StepTiles, spans: Any, kv: PagedKV) -> float:
    """Median of nine replays of the graph made with these tiles; infinite where they do not compile."""
    step.tiles = tiles
    try:
        step.capture()
    except Exception as error:
        sys.stderr.write(f"{tiles}: {error}\n")
        return float("inf")
    step.run(spans, [span.block_table for span in spans], kv)
    times = []
    for _ in range(11):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        step._graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000)
    return statistics.median(times[2:])


def random_store(config: ModelConfig) -> PagedKV:
    """KV that is not zeros: zeros are faster than real data."""
    kv = PagedKV(config, 1024, BLOCK_TOKENS, PLACEMENT)
    for layer in kv.storage.layers:
        layer.normal_()
    return kv


def leave_out(step: Any, product: str) -> None:
    """What a part costs is what the step costs less without it; the numbers it computes are then wrong."""
    linear, attend = step._linear, step._attend

    def some_linear(name: str, x: Any, weight: Any, out: Any, **rest: Any) -> int:
        if name != product:
            return int(linear(name, x, weight, out, **rest))
        return -(-out.shape[1] // getattr(step.tiles, name).block_n)

    step._linear = some_linear
    step._attend = (lambda index, layer: None) if product == "attention" else attend


def tune(name: str, config: ModelConfig, rows: int, shared: int, own: int) -> dict[str, Any]:
    """One case; prints what was best after each product."""
    bucket = bucket_of(rows)
    decoder = decoder_of(config, bucket)
    kv = random_store(config)
    step = decoder._steps[bucket]
    spans = spans_of(rows, shared, own, 0)
    best = step.tiles
    best_us = replay_us(step, best, spans, kv)
    sys.stdout.write(f"{name} {rows}: {best_us:.0f} us with the tiles so far\n")
    tried = []
    for turn, product in enumerate(ORDER):
        for is_second in (False, True) if turn < len(ORDER) else (False,):
            found = variants(getattr(best, product)) if is_second else candidates(config, bucket, product)
            if is_second and product == "attention":
                continue
            for tile in found:
                if product == "attention":
                    tile = merged_attention(best.attention, tile)
                tiles = replace(best, **{product: tile})
                us = replay_us(step, tiles, spans, kv)
                tried.append({"product": product, "us": us} | asdict(tile))
                if us < best_us:
                    best, best_us = tiles, us
        sys.stdout.write(f"{name} {rows} {product:9} {best_us:7.0f} us {getattr(best, product)}\n")
        sys.stdout.flush()
    for left_out in ("attention", "qkv", "o", "gate_up", "down", "head"):
        leave_out(step, left_out)
        us = best_us - replay_us(step, best, spans, kv)
        del step._linear, step._attend
        sys.stdout.write(
            f"  {left_out}: {us:.0f} us, {us / (1 if left_out == 'head' else config.layers):.2f} each\n"
        )
    decode.STARTS_EARLY = False
    late_us = replay_us(step, best, spans, kv)
    decode.STARTS_EARLY = True
    floor_us = needed_bytes(config, rows, shared, own) / 4.25e12 * 1e6
    sys.stdout.write(
        f"{name} {rows}: {best_us:.0f} us, {floor_us / best_us:.2f} of 4.25 TB/s; "
        f"{late_us:.0f} us without early starts\n"
    )
    return {
        "model": name,
        "rows": rows,
        "best_us": best_us,
        "late_us": late_us,
        "best": asdict(best),
        "tried": tried,
    }


def main() -> None:
    """Compiles everything in parallel, then measures alone."""
    wanted = [
        (name, rows, product, tile)
        for name, config, rows, _, _ in CASES
        for product in ORDER
        for tile in candidates(config, bucket_of(rows), product)
    ]
    sys.stdout.write(f"{len(wanted)} tiles\n")
    with multiprocessing.get_context("spawn").Pool(WORKERS) as pool:
        pool.map(compile_part, [wanted[index::WORKERS] for index in range(WORKERS)])
    sys.stdout.write("compiled\n")
    records = []
    for case in CASES:
        records.append(tune(*case))
        torch.cuda.empty_cache()
        Path(sys.argv[1]).write_text(json.dumps({"device": torch.cuda.get_device_name(), "cases": records}))


if __name__ == "__main__":
    main()
