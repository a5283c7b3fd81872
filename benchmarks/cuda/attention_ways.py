"""Attention of one decode step in three ways: ours and flex_attention over pages, SDPA over gathered ones.

Run on a machine with a CUDA device: python benchmarks/cuda/attention_ways.py OUT.json
One layer of Qwen2.5-1.5B's shape in bfloat16, rows behind a shared prefix. Each way runs LAYERS times in one
graph; figures are for one layer, median (smallest to largest) of RUNS. SDPA copies every row's keys
first; flex_attention sees the whole store and hides by a block mask, made once, what belongs to others.
"""

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
import triton
from steps import BLOCK_TOKENS, QWEN2, filled_kv, random_weights, spans_of, spread
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from runtime.model.paged_kv import PagedKV
from runtime.tiers.cuda.decode import CudaDecoder
from runtime.tiers.cuda.plan import bucket_for

LAYERS = 28
RUNS = 5
CASES = [(5, 2000, 100), (32, 2000, 100)]


def graph_us(work: Callable[[], Any]) -> dict[str, float]:
    """Of one call in a graph of LAYERS."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAYERS):
            work()
    times = [
        triton.testing.do_bench(graph.replay, warmup=10, rep=40, return_mode="median") * 1e3 / LAYERS
        for _ in range(RUNS)
    ]
    return spread(times)


def slots_of(rows: int, shared: int, own: int) -> Tensor:
    """[rows, context]: where each row's keys lie."""
    positions = torch.arange(shared + own)
    tables = torch.tensor([span.block_table for span in spans_of(rows, shared, own, 0)])
    return (tables[:, positions // BLOCK_TOKENS] * BLOCK_TOKENS + positions % BLOCK_TOKENS).cuda()


def ours(rows: int, shared: int, own: int, kv: PagedKV) -> dict[str, float]:
    """Both attention kernels, with rotation and the store of the newest token."""
    bucket = bucket_for(rows)
    step = CudaDecoder(random_weights(QWEN2), (bucket,), "triton")._steps[bucket]
    spans = spans_of(rows, shared, own, 0)
    step.run(spans, [span.block_table for span in spans], kv)
    return graph_us(lambda: step._attend(0, step._weights.layers[0]))


def gathered(slots: Tensor, q: Tensor, layer: Tensor) -> dict[str, float]:
    """SDPA; without rotation and without the store of the newest token."""

    def work() -> Tensor:
        held = layer[slots]
        keys, values = held[:, :, 0].transpose(1, 2), held[:, :, 1].transpose(1, 2)
        return F.scaled_dot_product_attention(q, keys, values, enable_gqa=True)

    return graph_us(work)


def flexible(slots: Tensor, q: Tensor, layer: Tensor) -> dict[str, float]:
    """flex_attention, compiled; its mask is made anew where a real step would have to, and not timed."""
    is_seen = torch.zeros(len(slots), len(layer), dtype=torch.bool, device="cuda")
    is_seen.scatter_(1, slots, True)
    mask = create_block_mask(lambda b, h, row, key: is_seen[row, key], None, None, len(slots), len(layer))
    keys, values = (layer[:, side].transpose(0, 1).unsqueeze(0) for side in (0, 1))
    rows = q.squeeze(2).transpose(0, 1).unsqueeze(0)
    compiled = torch.compile(flex_attention)
    return graph_us(
        lambda: compiled(
            rows, keys, values, block_mask=mask, scale=1 / math.sqrt(QWEN2.head_dim), enable_gqa=True
        )
    )


def main() -> None:
    """Writes one JSON document."""
    record: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "us": []}
    for rows, shared, own in CASES:
        kv = filled_kv(QWEN2, rows, shared, own)
        q = torch.randn(rows, QWEN2.heads, 1, QWEN2.head_dim, dtype=torch.bfloat16, device="cuda")
        slots, layer = slots_of(rows, shared, own), kv.storage.layers[0]
        found: dict[str, Any] = {"rows": rows, "shared_tokens": shared, "own_tokens": own}
        found["ours"] = ours(rows, shared, own, kv)
        found["sdpa_gathered"] = gathered(slots, q, layer)
        found["flex_attention"] = flexible(slots, q, layer)
        record["us"].append(found)
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()
        Path(sys.argv[1]).write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
