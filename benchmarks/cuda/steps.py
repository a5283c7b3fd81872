"""Time of one decode step against the memory bandwidth that was measured beside it, both ways to multiply.

Run on a machine with a CUDA device: python benchmarks/cuda/steps.py OUT.json
Random weights in the shapes of SmolLM2-135M and Qwen2.5-1.5B; bfloat16. Products as one kernel between two
attentions (`auto`, where it fits) and as one Triton kernel each are measured in turn, RUNS times.
"""

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
import triton

from runtime.model.config import ModelConfig
from runtime.model.decoder_weights import DecoderWeights
from runtime.model.forward_batch import Span
from runtime.model.linear import PlainLinear
from runtime.model.numeric import Placement
from runtime.model.paged_kv import PagedKV
from runtime.model.weights import weight_shapes
from runtime.tiers.cuda.decode import CudaDecoder, Products
from runtime.tiers.cuda.plan import bucket_for
from tests.fakes.random_weights import RandomWeights

PLACEMENT = Placement(torch.bfloat16, torch.device("cuda"))

SMOLLM2 = ModelConfig("llama", 576, 30, 9, 3, 64, 1536, 49152, 1e5, 1e-5, 8192, True)
QWEN2 = ModelConfig("qwen2", 1536, 28, 12, 2, 128, 8960, 151936, 1e6, 1e-6, 32768, True)
BLOCK_TOKENS = 32
RUNS = 3
BUCKETS = (1, 8, 16, 32)
PRODUCTS: tuple[Products, ...] = ("auto", "triton")
CASES = [
    # name, config, rows, shared tokens, own tokens
    ("smollm2-135m", SMOLLM2, 1, 0, 2300),
    ("smollm2-135m", SMOLLM2, 5, 2000, 300),
    ("qwen2.5-1.5b", QWEN2, 1, 0, 2048),
    ("qwen2.5-1.5b", QWEN2, 5, 2000, 100),
    ("qwen2.5-1.5b", QWEN2, 16, 2000, 100),
    ("qwen2.5-1.5b", QWEN2, 32, 2000, 100),
    ("qwen2.5-1.5b", QWEN2, 32, 0, 2048),
]


def random_weights(config: ModelConfig) -> DecoderWeights:
    """Seeded, on the device, bfloat16."""
    return DecoderWeights.read(RandomWeights(config, device="cuda"), PLACEMENT, PlainLinear)


def bandwidth_bytes_per_s() -> dict[str, float]:
    """Of a large copy (bytes read and written) and of a large sum (bytes read)."""
    source = torch.randn(1 << 30, device="cuda", dtype=torch.bfloat16)
    target = torch.empty_like(source)
    copied = triton.testing.do_bench(lambda: target.copy_(source), return_mode="median")
    wide = source.view(torch.float32).view(1 << 15, -1)
    summed = triton.testing.do_bench(lambda: torch.amax(wide, dim=1), return_mode="median")
    return {"copy": 2 * source.nbytes / copied * 1e3, "read": source.nbytes / summed * 1e3}


def needed_bytes(config: ModelConfig, rows: int, shared: int, own: int) -> int:
    """Each weight once, the shared prefix once, each row's own keys; a tied head once."""
    weights = sum(
        2 * torch.Size(shape).numel()
        for name, shape in weight_shapes(config)
        if name != "embed" or config.tied_head
    )
    return weights + (shared + rows * own) * config.kv_format(2).token_bytes


def spans_of(rows: int, shared: int, own: int, step: int) -> tuple[Span, ...]:
    """One decode step: rows behind a shared prefix."""
    shared_blocks = shared // BLOCK_TOKENS
    own_blocks = -(-(shared + own + 64) // BLOCK_TOKENS) - shared_blocks
    tables = [
        (
            *range(shared_blocks),
            *range(shared_blocks + row * own_blocks, shared_blocks + (row + 1) * own_blocks),
        )
        for row in range(rows)
    ]
    return tuple(Span([row], shared + own + step, 1, tables[row]) for row in range(rows))


def filled_kv(config: ModelConfig, rows: int, shared: int, own: int) -> PagedKV:
    """Random keys and values, with room for what `spans_of` names."""
    blocks = (shared + rows * (own + 128)) // BLOCK_TOKENS + rows * 2 + 2
    kv = PagedKV(config, blocks, BLOCK_TOKENS, PLACEMENT)
    for layer in kv.storage.layers:
        layer.normal_()
    return kv


def spread(values: list[float]) -> dict[str, float]:
    """Median and range."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "n": len(values)}


def measure(decoder: CudaDecoder, config: ModelConfig, rows: int, shared: int, own: int) -> dict[str, Any]:
    """Times of one case; step and wall include planning and the copy of the buffer."""
    kv = filled_kv(config, rows, shared, own)
    device_us, wall_us = [], []
    for step in range(48):
        spans = spans_of(rows, shared, own, step)
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        began = time.perf_counter()
        begin.record()
        logits = decoder.step(spans, [span.block_table for span in spans], kv)
        end.record()
        logits.argmax(-1).tolist()
        wall_us.append((time.perf_counter() - began) * 1e6)
        device_us.append(begin.elapsed_time(end) * 1e3)
    # One replay alone: without planning and the copy of the buffer.
    graph = decoder._steps[bucket_for(rows, decoder.buckets)]._graph
    replay_us = triton.testing.do_bench(graph.replay, warmup=20, rep=100, return_mode="all")
    return {
        "replay_us": spread([value * 1e3 for value in replay_us]),
        "step_us": statistics.median(device_us[8:]),
        "wall_us": statistics.median(wall_us[8:]),
    }


def decoders_of(name: str, config: ModelConfig) -> dict[Products, CudaDecoder]:
    """Both ways over the same weights."""
    weights = random_weights(config)
    made = {products: CudaDecoder(weights, BUCKETS, products) for products in PRODUCTS}
    for products, decoder in made.items():
        began = time.perf_counter()
        for bucket in BUCKETS:
            decoder.capture(bucket)
        took_s = time.perf_counter() - began
        sys.stdout.write(f"{name}, {products}: compiled and captured in {took_s:.1f} s\n")
    return made


def measure_case(
    decoders: dict[Products, CudaDecoder], config: ModelConfig, sizes: tuple[int, int, int], best: float
) -> dict[str, Any]:
    """Both ways in turn, so that what the device does meanwhile meets both."""
    rows, shared, own = sizes
    bucket = bucket_for(rows, BUCKETS)
    floor_us = needed_bytes(config, rows, shared, own) / best * 1e6
    runs: dict[Products, list[dict[str, Any]]] = {products: [] for products in PRODUCTS}
    for _ in range(RUNS):
        for products, decoder in decoders.items():
            runs[products].append(measure(decoder, config, rows, shared, own))
    found: dict[str, Any] = {"rows": rows, "shared_tokens": shared, "own_tokens": own, "floor_us": floor_us}
    for products, measured in runs.items():
        replay_us = spread([run["replay_us"]["median"] for run in measured])
        found[products] = {
            "is_chain": products == "auto" and bucket not in decoders["auto"].lost,
            "replay_us": replay_us,
            "step_us": spread([run["step_us"] for run in measured]),
            "wall_us": spread([run["wall_us"] for run in measured]),
            "share_of_bandwidth": floor_us / replay_us["median"],
        }
    return found


def main() -> None:
    """Writes one JSON document."""
    rates = bandwidth_bytes_per_s()
    best = max(rates.values())
    record: dict[str, Any] = {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__,
        "dtype": "bfloat16", "bandwidth_bytes_per_s": rates, "steps": [],
    }  # fmt: skip
    sys.stdout.write(json.dumps({key: record[key] for key in ("device", "bandwidth_bytes_per_s")}) + "\n")
    held: tuple[str, dict[Products, CudaDecoder]] = ("", {})
    for name, config, *sizes in CASES:
        if name != held[0]:
            held = ("", {})
            torch.cuda.empty_cache()
            held = (name, decoders_of(name, config))
        found = {"model": name} | measure_case(held[1], config, tuple(sizes), best)
        record["steps"].append(found)
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()
        Path(sys.argv[1]).write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
