"""The tier on a device: the same numbers as the layers give, whatever is shared and whatever steps follow.

Where Triton is installed and no device is, its interpreter runs the same kernels.
"""

import os
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
import torch

from runtime.model.config import ModelConfig
from runtime.model.contiguous_kv import ContiguousKV
from runtime.model.decoder_weights import DecoderWeights
from runtime.model.forward_batch import ForwardBatch, Span
from runtime.model.linear import PlainLinear
from runtime.model.llama import LlamaModel
from runtime.model.numeric import Placement
from runtime.model.paged_kv import PagedKV
from runtime.tiers.aten.tier import AtenTier
from runtime.tiers.cuda.tier import CudaTier
from tests.fakes.random_weights import RandomWeights

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
pytestmark = pytest.mark.skipif(
    DEVICE.type == "cpu" and find_spec("triton") is None,
    reason="no CUDA device, and no Triton that could interpret the kernels",
)
if DEVICE.type == "cpu":
    os.environ.setdefault("TRITON_INTERPRET", "1")
FAMILIES = {
    "llama": ModelConfig("llama", 48, 2, 6, 2, 8, 40, 300, 5000.0, 1e-5, 512, True),
    "qwen2": ModelConfig("qwen2", 80, 2, 4, 2, 20, 72, 300, 5000.0, 1e-5, 512, True),
    "qwen3": ModelConfig("qwen3", 48, 2, 3, 3, 16, 40, 300, 5000.0, 1e-5, 512, False),
}
Pair = tuple[LlamaModel, LlamaModel]


@pytest.fixture(autouse=True, scope="module")
def _exact_products() -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


def pair_of(config: ModelConfig, dtype: torch.dtype) -> Pair:
    """A model by the tier, and the same layer by layer."""
    weights = DecoderWeights.read(RandomWeights(config), Placement(dtype, DEVICE), PlainLinear)
    return LlamaModel(weights, CudaTier(weights)), LlamaModel(weights, AtenTier())


@pytest.fixture(scope="module", params=list(FAMILIES))
def pair(request: pytest.FixtureRequest) -> Pair:
    return pair_of(FAMILIES[request.param], torch.float32)


def prompt_of(count: int, seed: int = 1) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 300, (count,), generator=generator).tolist()


def greedy(model: LlamaModel, kv: PagedKV | ContiguousKV, spans: list[Span], steps: int) -> list[list[int]]:
    """Tokens of each sequence; every span is its prompt's last part."""
    made: list[list[int]] = [[] for _ in spans]
    for _ in range(steps):
        tokens = model.forward(ForwardBatch(tuple(spans)), kv).argmax(-1).tolist()
        for texts, token in zip(made, tokens, strict=True):
            texts.append(token)
        spans = [
            Span([token], span.context_tokens, 1, span.block_table)
            for token, span in zip(tokens, spans, strict=True)
        ]
    return made


def paged_spans(model: LlamaModel, kv: PagedKV, agents: int, prefix: list[int]) -> list[Span]:
    """A prefix computed once; a part of its own for each agent, of its own length."""
    shared = len(prefix) // kv.block_tokens
    model.forward(ForwardBatch((Span(prefix, 0, 0, range(shared)),)), kv)
    spans = []
    for agent in range(agents):
        first = shared + 4 * agent
        table = (*range(shared), *range(first, first + 4))
        spans.append(Span(prompt_of(1 + 3 * agent, agent + 2), len(prefix), 1, table))
    return spans


@pytest.mark.parametrize("agents", [1, 5])
def test_agents_on_a_shared_prefix_get_the_tokens_that_the_layers_give(pair: Pair, agents: int) -> None:
    texts = []
    for model in pair:
        kv = PagedKV(model.config, 40, 16, model.placement)
        spans = paged_spans(model, kv, agents, prompt_of(128))
        texts.append(greedy(model, kv, spans, steps=20 if DEVICE.type == "cuda" else 3))
    assert texts[0] == texts[1]


def test_the_contiguous_cache_is_served_as_well(pair: Pair) -> None:
    texts = []
    for model in pair:
        kv = ContiguousKV(model.config, 100, model.placement)
        texts.append(greedy(model, kv, [Span(prompt_of(50), 0)], steps=20 if DEVICE.type == "cuda" else 3))
    assert texts[0] == texts[1]


def test_logits_and_keys_are_those_of_the_layers(pair: Pair) -> None:
    by_tier, by_layers = pair
    stores = [PagedKV(model.config, 40, 16, model.placement) for model in pair]
    spans = [paged_spans(model, kv, 3, prompt_of(64)) for model, kv in zip(pair, stores, strict=True)]
    for step in range(2):
        found = by_tier.forward(ForwardBatch(tuple(spans[0])), stores[0])
        expected = by_layers.forward(ForwardBatch(tuple(spans[1])), stores[1])
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
        for index, layer in enumerate(stores[0].storage.layers):
            torch.testing.assert_close(layer, stores[1].storage.layers[index], atol=1e-4, rtol=1e-4)
        spans = [[Span([step], span.context_tokens, 1, span.block_table) for span in row] for row in spans]


def test_rows_whose_logits_nobody_wants_are_left_out(pair: Pair) -> None:
    model = pair[0]
    kv = PagedKV(model.config, 8, 16, model.placement)
    spans = (Span([1], 0, 0, (0,)), Span([2], 0, 1, (1,)))
    assert model.forward(ForwardBatch(spans), kv).shape == (1, model.config.vocab)


def test_the_logits_of_a_step_stay_what_they_were(pair: Pair) -> None:
    model = pair[0]
    kv = PagedKV(model.config, 8, 16, model.placement)
    first = model.forward(ForwardBatch((Span([1], 0, 1, (0,)),)), kv)
    kept = first.clone()
    model.forward(ForwardBatch((Span([2], 1, 1, (0,)),)), kv)
    assert torch.equal(first, kept)


def test_two_stores_in_turn_do_not_mix(pair: Pair) -> None:
    by_tier, by_layers = pair
    stores = [PagedKV(by_tier.config, 4, 16, by_tier.placement) for _ in range(2)]
    expected = [PagedKV(by_tier.config, 4, 16, by_tier.placement) for _ in range(2)]
    for position in range(3):
        for which in range(2):
            batch = ForwardBatch((Span([10 * which + position], position, 1, (which,)),))
            found = by_tier.forward(batch, stores[which])
            torch.testing.assert_close(found, by_layers.forward(batch, expected[which]), atol=1e-4, rtol=1e-4)


def test_a_token_that_is_not_in_the_vocabulary_is_refused(pair: Pair) -> None:
    model = pair[0]
    kv = PagedKV(model.config, 4, 16, model.placement)
    with pytest.raises(IndexError, match=r"0\.\.299"):
        model.forward(ForwardBatch((Span([300], 0, 1, (0,)),)), kv)


@pytest.mark.skipif(DEVICE.type == "cpu", reason="no CUDA device")
@pytest.mark.parametrize("rows", [1, 8, 12, 30, 64, 65])
def test_every_bucket_gives_the_logits_of_the_layers_in_bfloat16(rows: int) -> None:
    config = ModelConfig("qwen2", 1024, 2, 8, 2, 64, 2048, 1000, 1e5, 1e-5, 1024, True)
    by_tier, by_layers = pair_of(config, torch.bfloat16)
    stores = [PagedKV(config, 12 + 4 * rows, 32, model.placement) for model in (by_tier, by_layers)]
    logits = []
    for model, kv in zip((by_tier, by_layers), stores, strict=True):
        model.forward(ForwardBatch((Span(prompt_of(320), 0, 0, range(10)),)), kv)
        tables = [(*range(10), 12 + 4 * row, 13 + 4 * row) for row in range(rows)]
        for start in range(320, 324):
            spans = tuple(Span([row + start - 300], start, 1, table) for row, table in enumerate(tables))
            logits.append(model.forward(ForwardBatch(spans), kv))
    for found, expected in zip(logits[:4], logits[4:], strict=True):
        assert found.isfinite().all()
        error = (found - expected).norm() / expected.norm()
        assert error < 0.03, f"relative error {error:.4f}"


@pytest.mark.skipif(DEVICE.type == "cpu", reason="no CUDA device")
def test_a_ragged_batch_of_prefills_and_decodes_is_that_of_the_layers_in_bfloat16() -> None:
    config = ModelConfig("llama", 576, 2, 9, 3, 64, 1536, 1000, 1e5, 1e-5, 4096, True)
    by_tier, by_layers = pair_of(config, torch.bfloat16)
    tables = [range(70), range(70, 100), range(100, 103)]
    passes = [
        (Span(prompt_of(700), 0, 0, tables[0]), Span(prompt_of(33), 0, 1, tables[1])),
        (Span([5], 33, 1, tables[1]), Span(prompt_of(900), 700, 1, tables[0]), Span([1, 2], 0, 2, tables[2])),
    ]
    found = []
    for model in (by_tier, by_layers):
        kv = PagedKV(config, 103, 32, model.placement)
        found.append([model.forward(ForwardBatch(spans), kv) for spans in passes])
    for ours, expected in zip(*found, strict=True):
        assert (ours - expected).norm() / expected.norm() < 0.03
