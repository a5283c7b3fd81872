"""The products between two attentions as one kernel: the numbers of the layers, and the same every time."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from runtime.model.config import ModelConfig
from runtime.model.decoder_weights import DecoderWeights
from runtime.model.forward_batch import ForwardBatch, Span
from runtime.model.linear import PlainLinear
from runtime.model.llama import LlamaModel
from runtime.model.numeric import Placement
from runtime.model.paged_kv import PagedKV
from runtime.tiers.aten.tier import AtenTier
from runtime.tiers.cuda.chain import OLDEST_CAPABILITY, why_no_device
from runtime.tiers.cuda.errors import ChainShapeError, NvrtcMissingError
from runtime.tiers.cuda.nvrtc import machine_code, nvrtc
from runtime.tiers.cuda.plan import bucket_for
from runtime.tiers.cuda.tier import products_line
from tests.fakes.random_weights import RandomWeights

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
needs_device = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() < OLDEST_CAPABILITY,
    reason="no CUDA device of capability 9.0",
)
SHAPES = {
    "llama": ModelConfig("llama", 96, 2, 6, 2, 16, 160, 304, 5000.0, 1e-5, 512, True),
    "qwen2": ModelConfig("qwen2", 160, 2, 4, 2, 24, 352, 304, 5000.0, 1e-5, 512, True),
    "qwen3": ModelConfig("qwen3", 64, 2, 4, 4, 32, 64, 304, 5000.0, 1e-5, 512, False),
    "smollm2": ModelConfig("llama", 576, 3, 9, 3, 64, 1536, 1024, 1e5, 1e-5, 8192, True),
    "qwen2.5": ModelConfig("qwen2", 1536, 3, 12, 2, 128, 8960, 1024, 1e6, 1e-6, 32768, True),
    "wide": ModelConfig("qwen3", 2048, 2, 16, 8, 128, 6144, 1024, 1e6, 1e-6, 4096, True),
}


def placed(config: ModelConfig, dtype: torch.dtype = torch.bfloat16) -> DecoderWeights:
    return DecoderWeights.read(RandomWeights(config, device="cuda"), Placement(dtype, DEVICE), PlainLinear)


def spans_of(rows: int, position: int) -> list[Span]:
    """One token each, behind three shared blocks of 16 and five of their own."""
    return [
        Span([7 * row + position], position, 1, (0, 1, 2, *range(3 + 5 * row, 8 + 5 * row)))
        for row in range(rows)
    ]


def store(weights: DecoderWeights) -> PagedKV:
    kv = PagedKV(weights.config, 168, 16, weights.placement)
    for index, layer in enumerate(kv.storage.layers):
        layer.normal_(generator=torch.Generator("cuda").manual_seed(index))
    return kv


@needs_device
@pytest.mark.parametrize("rows", [1, 3, 5, 8, 16, 19, 32])
@pytest.mark.parametrize("name", list(SHAPES))
def test_a_step_gives_the_logits_of_the_layers(name: str, rows: int) -> None:
    from runtime.tiers.cuda.decode import CudaDecoder

    weights = placed(SHAPES[name])
    decoder = CudaDecoder(weights, (bucket_for(rows),), "chain")
    layers = LlamaModel(weights, AtenTier())
    ours, theirs = store(weights), store(weights)
    for position in range(60, 63):
        spans = spans_of(rows, position)
        found = decoder.step(spans, [span.block_table for span in spans], ours)
        expected = layers.forward(ForwardBatch(tuple(spans)), theirs)
        assert found.isfinite().all()
        assert (found - expected).norm() / expected.norm() < 0.03


@needs_device
@pytest.mark.parametrize("rows", [1, 8, 13, 29])
def test_two_thousand_replays_give_the_same_bits(rows: int) -> None:
    from runtime.tiers.cuda.decode import CudaDecoder

    weights = placed(SHAPES["qwen2.5"])
    decoder = CudaDecoder(weights, (bucket_for(rows),), "chain")
    kv, spans = store(weights), spans_of(rows, 70)
    tables = [span.block_table for span in spans]
    first = decoder.step(spans, tables, kv)
    different = torch.zeros((), dtype=torch.int64, device=DEVICE)
    for _ in range(2000):
        different += (decoder.step(spans, tables, kv) != first).any()
    assert int(different) == 0


@needs_device
def test_where_it_does_not_fit_triton_multiplies_and_the_reason_is_kept() -> None:
    from runtime.tiers.cuda.decode import CudaDecoder

    config = replace(SHAPES["wide"], vocab=1000)
    decoder = CudaDecoder(placed(config), (1, 8), "auto")
    assert decoder.lost == dict.fromkeys((1, 8), "vocab (1000) is not a multiple of 16")
    with pytest.raises(ChainShapeError, match="1000"):
        CudaDecoder(placed(config), (1,), "chain")
    with pytest.raises(ChainShapeError, match="64 rows, 32 is the most"):
        CudaDecoder(placed(SHAPES["wide"]), (64,), "chain")
    narrow = CudaDecoder(placed(SHAPES["wide"], torch.float32), (1,), "auto")
    assert narrow.lost == {1: "it computes in bfloat16, not in float32"}


@needs_device
def test_where_triton_multiplies_faster_it_does() -> None:
    from runtime.tiers.cuda.decode import CudaDecoder

    assert set(CudaDecoder(placed(SHAPES["wide"]), (1, 8, 16, 32, 64), "auto").lost) == {64}
    assert set(CudaDecoder(placed(SHAPES["smollm2"]), (1, 8), "auto").lost) == {1, 8}
    assert CudaDecoder(placed(SHAPES["wide"]), (8, 32), "triton").lost == {}


@needs_device
def test_machine_code_is_kept_and_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from runtime.tiers.cuda.chain import built_kernel

    monkeypatch.setenv("DYNOFARM_HOME", str(tmp_path))
    assert built_kernel(1, 1, DEVICE).spilled_bytes == 0
    (kept,) = (tmp_path / "native").glob("chain-*.cubin")
    before = kept.stat().st_mtime_ns
    assert built_kernel(1, 1, DEVICE).registers > 0
    assert kept.stat().st_mtime_ns == before


def test_another_precision_than_bfloat16_is_refused() -> None:
    assert why_no_device(torch.float32, DEVICE) == "it computes in bfloat16, not in float32"


def has_nvrtc() -> bool:
    try:
        nvrtc()
    except NvrtcMissingError:
        return False
    return True


@pytest.mark.skipif(has_nvrtc(), reason="NVRTC is here")
def test_without_the_compiler_the_reason_is_named() -> None:
    with pytest.raises(NvrtcMissingError, match="libnvrtc was not found"):
        machine_code("chain.cu", {}, (9, 0))


@pytest.mark.parametrize(
    ("lost", "line"),
    [
        ({}, "products of up to 1, 8, 64 rows: one kernel between two attentions"),
        (
            {64: "many"},
            "products of up to 1, 8 rows: one kernel between two attentions; else Triton's (many)",
        ),
        ({1: "why", 8: "why", 64: "why"}, "products: one Triton kernel each (why)"),
    ],
)
def test_one_line_says_which_products_are_in_use(lost: dict[int, str], line: str) -> None:
    assert products_line(lost, (1, 8, 64)) == line
