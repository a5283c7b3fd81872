"""Time of one decode step against the memory bandwidth that was measured beside it.

Run on a machine with a CUDA device: python benchmarks/cuda/steps.py OUT.json
Random weights in the shapes of SmolLM2-135M and Qwen2.5-1.5B; bfloat16.
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
from runtime.model.cuda.decode import CudaDecoder
from runtime.model.decoder_weights import DecoderWeights
from runtime.model.forward_batch import Span
from runtime.model.linear import PlainLinear
from runtime.model.numeric import Placement
from runtime.model.paged_kv import PagedKV
from runtime.model.weights import weight_shapes
from tests.fakes.random_weights import RandomWeights

PLACEMENT = Placement(torch.bfloat16, torch.device("cuda"))

SMOLLM2 = ModelConfig("llama", 576, 30, 9, 3, 64, 1536, 49152, 1e5, 1e-5, 8192, True)
QWEN2 = ModelConfig("qwen2", 1536, 28, 12, 2, 128, 8960, 151936, 1e6, 1e-6, 32768, True)
BLOCK_TOKENS = 32
CASES = [
    # name, config, rows, shared tokens, own tokens
    ("smollm2-135m", SMOLLM2, 1, 0, 2300),
    ("smollm2-135m", SMOLLM2, 5, 2000, 300),
    ("qwen2.5-1.5b", QWEN2, 1, 0, 2048),
    ("qwen2.5-1.5b", QWEN2, 5, 2000, 100),
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
    return weights + (shared + rows * own) * config.kv_bytes_per_token(2)


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


def measure(decoder: CudaDecoder, config: ModelConfig, rows: int, shared: int, own: int) -> dict[str, Any]:
    """Times of one case; step and wall include planning and the copy of the buffer."""
    blocks = (shared + rows * (own + 128)) // BLOCK_TOKENS + rows * 2 + 2
    kv = PagedKV(config, blocks, BLOCK_TOKENS, PLACEMENT)
    for layer in kv.storage.layers:
        layer.normal_()
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
    graph = decoder._steps[next(bucket for bucket in decoder._steps if bucket >= rows)]._graph
    replay_us = triton.testing.do_bench(graph.replay, warmup=20, rep=100, return_mode="all")
    replays = [value * 1e3 for value in replay_us]
    return {
        "replay_us": {
            "median": statistics.median(replays),
            "min": min(replays),
            "max": max(replays),
            "n": len(replays),
        },
        "step_us": statistics.median(device_us[8:]),
        "wall_us": statistics.median(wall_us[8:]),
    }


def main() -> None:
    """Writes one JSON document."""
    rates = bandwidth_bytes_per_s()
    best = max(rates.values())
    record: dict[str, Any] = {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__,
        "dtype": "bfloat16", "bandwidth_bytes_per_s": rates, "steps": [],
    }  # fmt: skip
    sys.stdout.write(json.dumps({key: record[key] for key in ("device", "bandwidth_bytes_per_s")}) + "\n")
    decoders: dict[str, CudaDecoder] = {}
    for name, config, rows, shared, own in CASES:
        if name not in decoders:
            decoders.clear()
            torch.cuda.empty_cache()
            decoder = CudaDecoder(random_weights(config), buckets=(1, 8, 32))
            began = time.perf_counter()
            for bucket in (1, 8, 32):
                decoder.capture(bucket)
            sys.stdout.write(f"{name}: compiled and captured in {time.perf_counter() - began:.1f} s\n")
            decoders[name] = decoder
        found = measure(decoders[name], config, rows, shared, own)
        floor_us = needed_bytes(config, rows, shared, own) / best * 1e6
        found |= {
            "model": name,
            "rows": rows,
            "shared_tokens": shared,
            "own_tokens": own,
            "floor_us": floor_us,
        }
        found["share_of_bandwidth"] = floor_us / found["replay_us"]["median"]
        record["steps"].append(found)
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()
    Path(sys.argv[1]).write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
