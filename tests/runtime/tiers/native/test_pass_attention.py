"""Chunks of prompts and decodes in one pass: the native attention agrees with torch's over any mixture."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.model.contiguous_kv import ContiguousKV
from runtime.model.forward_batch import ForwardBatch, Span
from runtime.model.llama import LlamaModel
from runtime.model.paged_kv import PagedKV
from runtime.tiers.native.tier import MOST_ROWS
from tests.runtime.tiers.native.random_models import Geometry, random_model
from tests.runtime.tiers.native.test_step import GEOMETRIES, TOLERANCES, assert_agree, filled


@st.composite
def mixtures(draw: st.DrawFn) -> tuple[tuple[Span, ...], int]:
    """Decodes first or not, then chunks of any length behind a shared prefix of any length."""
    block_tokens = draw(st.sampled_from([1, 5, 16, 32]))
    fresh = iter(draw(st.permutations(range(340))))
    prefix = tuple(next(fresh) for _ in range(draw(st.integers(0, 6))))
    lengths = draw(st.lists(st.sampled_from([1, 1, 2, 7, 40]), min_size=1, max_size=5))
    lengths.append(MOST_ROWS + 1)  # or it would be a step
    spans = []
    for length in lengths:
        before = draw(st.integers(0, 3 * block_tokens))
        own = tuple(next(fresh) for _ in range(-(-(before + length) // block_tokens)))
        if len(prefix) + len(own) > 80 or len(spans) > 4:
            continue
        start = len(prefix) * block_tokens + before
        spans.append(Span([7] * length, start, 1, prefix + own))
    spans.append(Span([3] * (MOST_ROWS + 1), 0, 1, tuple(next(fresh) for _ in range(MOST_ROWS + 1))))
    return tuple(spans), block_tokens


@settings(max_examples=40, deadline=None)
@given(geometry=GEOMETRIES, mixture=mixtures(), dtype=st.sampled_from(["float32", "bfloat16"]))
def test_any_mixture_agrees_with_torch(
    geometry: Geometry, mixture: tuple[tuple[Span, ...], int], dtype: str
) -> None:
    spans, block_tokens = mixture
    results = []
    for tier in ("native", "aten"):
        model = random_model(geometry, tier, dtype)
        kv = filled(model, block_tokens)
        results.append((model.forward(ForwardBatch(spans), kv), kv.storage.layers))
    (found, ours), (expected, theirs) = results
    assert_agree(found, expected, TOLERANCES[dtype])
    for layer, other in zip(ours, theirs, strict=True):
        assert_agree(layer, other, TOLERANCES[dtype])


def prefill(model: LlamaModel, chunks: list[int]) -> torch.Tensor:
    kv = PagedKV(model.config, 20, 16, model.placement)
    done = 0
    logits = torch.empty(0)
    for chunk in chunks:
        tokens = [(5 * position) % 90 for position in range(done, done + chunk)]
        logits = model.forward(ForwardBatch((Span(tokens, done, 1, tuple(range(20))),)), kv)
        done += chunk
    return logits


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_chunks_and_threads_do_not_change_what_comes_out(threads: int) -> None:
    model = random_model(Geometry(head_dim=16, hidden=64), "native")
    torch.set_num_threads(threads)
    whole = prefill(model, [300])
    assert_agree(prefill(model, [128, 128, 44]), whole, 1e-5)
    assert_agree(prefill(model, [100, 3, 17, 180]), whole, 1e-5)


def test_a_prompt_in_the_serial_arms_cache_agrees_with_one_in_blocks() -> None:
    model = random_model(Geometry(head_dim=16, hidden=64), "native")
    kv = ContiguousKV(model.config, 300, model.placement)
    tokens = [(5 * position) % 90 for position in range(300)]
    found = model.forward(ForwardBatch((Span(tokens, 0, 1),)), kv)
    assert_agree(found, prefill(model, [300]), 1e-6)


def test_what_lies_behind_a_prompt_in_its_last_block_is_never_read() -> None:
    model = random_model(Geometry(), "native")
    batch = ForwardBatch((Span([7] * 21, 0, 1, (0, 1)),))
    clean_kv, spoilt_kv = filled(model, 16), filled(model, 16)
    for layer in spoilt_kv.storage.layers:
        layer[21:] = torch.nan
    assert torch.equal(model.forward(batch, spoilt_kv), model.forward(batch, clean_kv))
