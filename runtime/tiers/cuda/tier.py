"""The CUDA tier: decode steps through captured graphs, everything else layer by layer with our attention."""

import logging
import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal

import torch
from torch import Tensor

from runtime.model.decoder_weights import DecoderWeights
from runtime.model.forward_batch import ForwardBatch, KVStore, StepAttention
from runtime.model.linear import LinearMaker, PlainLinear, WeightDtype, make_int8_linear
from runtime.model.numeric import Placement
from runtime.tiers.cuda.chain import why_no_device
from runtime.tiers.cuda.errors import NvrtcMissingError
from runtime.tiers.cuda.nvrtc import nvrtc
from runtime.tiers.cuda.plan import StepTooLargeError

_LOG = logging.getLogger(__name__)
CAPTURED_AT_START: Final = (1, 8)
"""Buckets whose graphs exist before the first trial; a larger one is captured when it is first needed."""
OLDEST_CAPABILITY: Final = (8, 0)
"""bfloat16 on the matrix units."""


def why_not_here(placement: Placement, weight_dtype: WeightDtype) -> str | None:
    """What is missing for this tier on this machine, None if nothing is."""
    if weight_dtype != "auto":
        return f"its kernels do not read {weight_dtype} weights"
    if find_spec("triton") is None:
        return "Triton is not installed"
    if not torch.cuda.is_available():
        return "no CUDA device"
    capability = torch.cuda.get_device_capability()
    if capability < OLDEST_CAPABILITY:
        return f"the device has compute capability {capability[0]}.{capability[1]}, 8.0 is needed"
    return None


def why_slower(placement: Placement) -> str | None:
    """Why no step's products can be one kernel's between two attentions; Triton's kernels then run."""
    reason = why_no_device(placement.dtype, placement.device)
    if reason is None:
        try:
            nvrtc()
        except NvrtcMissingError as error:
            reason = str(error)
    return reason


def products_line(lost: Mapping[int, str], buckets: Sequence[int]) -> str:
    """Which products are in use, in one line; lost: why those of a bucket are Triton's."""
    ours = ", ".join(str(bucket) for bucket in buckets if bucket not in lost)
    reasons = "; ".join(dict.fromkeys(lost.values()))
    if not lost:
        return f"products of up to {ours} rows: one kernel between two attentions"
    if not ours:
        return f"products: one Triton kernel each ({reasons})"
    return f"products of up to {ours} rows: one kernel between two attentions; else Triton's ({reasons})"


def has_device() -> bool:
    """Whether torch sees a CUDA device, fit for this tier or not."""
    return torch.cuda.is_available()


def device_memory_bytes(device: torch.device) -> int:
    """All of the device's memory, used or not."""
    return torch.cuda.mem_get_info(device)[1]


def device_facts(device: torch.device) -> dict[str, str]:
    """Name, driver and CUDA of the device, for the conditions of a run."""
    return {
        "device_name": torch.cuda.get_device_name(device),
        "device_driver": _driver_version(),
        "device_cuda": torch.version.cuda or "unknown",
    }


def _driver_version(file: Path = Path("/proc/driver/nvidia/version")) -> str:
    try:
        found = re.search(r"\b\d+\.\d+(\.\d+)?\b", file.read_text())
    except OSError:
        return "unknown"
    return found.group() if found else "unknown"


def linear_maker(placement: Placement, weight_dtype: WeightDtype) -> LinearMaker:
    """Plain weights, which the kernels read as they are."""
    return make_int8_linear if weight_dtype == "int8" else PlainLinear


def open_tier(weights: DecoderWeights) -> "CudaTier":
    """Over weights made with this tier's `linear_maker`."""
    return CudaTier(weights)


class CudaTier:
    """Over plain weights on a CUDA device. Triton compiles once for a model's shape and caches that."""

    name: Literal["cuda"] = "cuda"

    def __init__(self, weights: DecoderWeights) -> None:
        from runtime.tiers.cuda.decode import CudaDecoder  # it imports Triton, which need not be installed
        from runtime.tiers.cuda.prefill import TileAttention

        self._vocab = weights.config.vocab
        self._config = weights.config
        self._attention = TileAttention
        self._decoder = CudaDecoder(weights)
        self.products = products_line(self._decoder.lost, self._decoder.buckets)
        _LOG.info("%s", self.products)
        for bucket in CAPTURED_AT_START:
            self._decoder.capture(bucket)

    def step(self, batch: ForwardBatch, kv: KVStore) -> Tensor | None:
        """Takes spans of one token each, up to the largest bucket; ValueError as the store's `block_tables`.

        IndexError for a token that is not in the vocabulary.
        """
        spans = batch.spans
        if batch.decode_rows < len(spans) or len(spans) > self._decoder.most_rows:
            return None
        tokens = [span.token_ids[0] for span in spans]
        if min(tokens) < 0 or max(tokens) >= self._vocab:
            raise IndexError(f"a token id outside 0..{self._vocab - 1}")
        try:
            logits = self._decoder.step(spans, kv.block_tables(batch), kv)
        except StepTooLargeError:
            return None
        wanted = batch.logit_rows()
        return logits if len(wanted) == len(spans) else logits[wanted]

    def attention(self, batch: ForwardBatch, kv: KVStore) -> StepAttention:
        """One launch a layer for the whole batch, keys read where they lie."""
        return self._attention(self._config, kv.storage, batch, kv.block_tables(batch))
