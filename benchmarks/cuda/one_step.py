"""A few replays of each bucket's step on a small model, for tools that watch memory: compute-sanitizer."""

import sys

import torch

from runtime.model.config import ModelConfig
from runtime.model.decoder_weights import DecoderWeights
from runtime.model.forward_batch import Span
from runtime.model.linear import PlainLinear
from runtime.model.numeric import Placement
from runtime.model.paged_kv import PagedKV
from runtime.tiers.cuda.decode import CudaDecoder
from runtime.tiers.cuda.plan import bucket_for
from tests.fakes.random_weights import RandomWeights

CONFIG = ModelConfig("qwen2", 160, 2, 4, 2, 24, 352, 304, 5000.0, 1e-5, 512, True)
PLACEMENT = Placement(torch.bfloat16, torch.device("cuda"))


def main() -> None:
    """One line a bucket."""
    weights = DecoderWeights.read(RandomWeights(CONFIG, device="cuda"), PLACEMENT, PlainLinear)
    for rows in (1, 5, 13, 29):
        decoder = CudaDecoder(weights, (bucket_for(rows),), "chain")
        kv = PagedKV(CONFIG, 1 + 2 * rows, 16, PLACEMENT)
        spans = [Span([row], 20, 1, (0, 1 + 2 * row, 2 + 2 * row)) for row in range(rows)]
        for _ in range(3):
            logits = decoder.step(spans, [span.block_table for span in spans], kv)
        sys.stdout.write(f"{rows} rows: sum of squares {float(logits.square().sum()):.3f}\n")


if __name__ == "__main__":
    main()
