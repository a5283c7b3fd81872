"""A native step computes what torch's operators compute, whatever the model's shape and the sharing."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from runtime.model.contiguous_kv import ContiguousKV
from runtime.model.forward_batch import ForwardBatch, Span
from runtime.model.linear import WeightDtype
from runtime.model.llama import LlamaModel
from runtime.model.paged_kv import PagedKV
from tests.runtime.tiers.native.random_models import Geometry, random_model

TOLERANCES = {"float32": 2e-5, "bfloat16": 0.06}
"""Of the largest logit. bfloat16: torch rounds between its operators, a native step hardly ever."""

POOL_BLOCKS = 340

GEOMETRIES = st.builds(
    Geometry,
    architecture=st.sampled_from(["llama", "qwen2", "qwen3"]),
    group=st.sampled_from([1, 2, 3, 7]),
    kv_heads=st.integers(1, 3),
    head_dim=st.sampled_from([2, 6, 8, 16, 20, 64]),
    hidden=st.sampled_from([24, 33, 48, 100]),
    ffn=st.sampled_from([16, 40, 61]),
    vocab=st.sampled_from([50, 131]),
    tied_head=st.booleans(),
)


@st.composite
def sharing(draw: st.DrawFn) -> tuple[list[tuple[int, ...]], list[int], int]:
    """Block tables that form a tree, the context of each row, and the block size."""
    block_tokens = draw(st.sampled_from([1, 3, 16, 32]))
    rows = draw(st.integers(1, 16))
    fresh = iter(draw(st.permutations(range(POOL_BLOCKS))))
    tables: list[tuple[int, ...]] = []
    contexts: list[int] = []
    for _ in range(rows):
        start: tuple[int, ...] = ()
        if tables and draw(st.booleans()):
            parent = draw(st.integers(0, len(tables) - 1))
            # Only blocks that the parent has filled can be shared.
            full = (contexts[parent] - 1) // block_tokens
            start = tables[parent][: draw(st.integers(0, full))]
        own = draw(st.integers(1, max(1, min(300 // max(1, rows // 4), 20 * block_tokens))))
        tables.append(start + tuple(next(fresh) for _ in range(-(-own // block_tokens))))
        contexts.append(len(start) * block_tokens + own)
    return tables, contexts, block_tokens


def filled(model: LlamaModel, block_tokens: int) -> PagedKV:
    kv = PagedKV(model.config, POOL_BLOCKS, block_tokens, model.placement)
    generator = torch.Generator().manual_seed(3)
    for layer in kv.storage.layers:
        layer.copy_(torch.randn(layer.shape, generator=generator))
    return kv


def assert_agree(found: Tensor, expected: Tensor, tolerance: float) -> None:
    assert found.shape == expected.shape
    assert (found - expected).abs().max() <= tolerance * expected.abs().max()


@settings(max_examples=40, deadline=None)
@given(geometry=GEOMETRIES, tree=sharing(), dtype=st.sampled_from(["float32", "bfloat16"]))
def test_a_step_agrees_with_torch_for_any_shape_and_any_tree_of_sharing(
    geometry: Geometry, tree: tuple[list[tuple[int, ...]], list[int], int], dtype: str
) -> None:
    tables, contexts, block_tokens = tree
    spans = tuple(
        Span([(17 * row) % geometry.vocab], context - 1, 1, table)
        for row, (table, context) in enumerate(zip(tables, contexts, strict=True))
    )
    native, aten = (random_model(geometry, tier, dtype) for tier in ("native", "aten"))
    stores = [filled(model, block_tokens) for model in (native, aten)]
    found, expected = (
        model.forward(ForwardBatch(spans), kv) for model, kv in zip((native, aten), stores, strict=True)
    )
    assert_agree(found, expected, TOLERANCES[dtype])
    for ours, theirs in zip(*(store.storage.layers for store in stores), strict=True):
        assert_agree(ours, theirs, TOLERANCES[dtype])


def greedy(model: LlamaModel, spans: Sequence[Span], count: int) -> list[list[int]]:
    kv = PagedKV(model.config, 64, 16, model.placement)
    batch = ForwardBatch(tuple(spans))
    texts: list[list[int]] = [[] for _ in spans]
    for _ in range(count):
        tokens = model.forward(batch, kv).argmax(-1).tolist()
        for text, token in zip(texts, tokens, strict=True):
            text.append(token)
        batch = ForwardBatch(
            tuple(
                Span([token], span.context_tokens, 1, span.block_table)
                for span, token in zip(batch.spans, tokens, strict=True)
            )
        )
    return texts


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_short_spans_are_steps_too_and_the_text_that_follows_is_the_same(architecture: str) -> None:
    geometry = Geometry(architecture=architecture, head_dim=16, hidden=64)
    spans = [Span([5, 6, 7], 0, 1, tuple(range(4))), Span([1, 2, 3, 4, 9], 0, 1, tuple(range(10, 14)))]
    native, aten = (greedy(random_model(geometry, tier), spans, 30) for tier in ("native", "aten"))
    assert native == aten
    assert len({*native[0], *native[1]}) > 5, "a text of one token would show little"


def test_the_serial_arms_cache_is_read_by_the_same_kernels() -> None:
    geometry = Geometry(head_dim=16)
    logits = []
    for tier in ("native", "aten"):
        model = random_model(geometry, tier)
        kv = ContiguousKV(model.config, 40, model.placement)
        model.forward(ForwardBatch((Span(list(range(30)), 0, 0),)), kv)
        logits.append(model.forward(ForwardBatch((Span([3, 4], 30, 2),)), kv))
    assert_agree(*logits, 2e-5)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 16])
@pytest.mark.parametrize(("dtype", "weight_dtype"), [("float32", "int8"), ("bfloat16", "auto")])
def test_every_number_of_rows_gives_each_row_what_it_gets_alone(
    rows: int, dtype: str, weight_dtype: WeightDtype
) -> None:
    model = random_model(Geometry(hidden=72, head_dim=16), "native", dtype, weight_dtype)
    spans = [Span([row], 20 + row, 1, (3 * row, 3 * row + 1, 3 * row + 2)) for row in range(rows)]
    together = model.forward(ForwardBatch(tuple(spans)), filled(model, 16))
    for row, span in enumerate(spans):
        alone = model.forward(ForwardBatch((span,)), filled(model, 16))
        assert_agree(together[row : row + 1], alone, 1e-5 if dtype == "float32" else 0.02)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_int8_weights_agree_with_torch_on_int8_weights(dtype: str) -> None:
    geometry = Geometry(hidden=72, head_dim=16, architecture="qwen2")
    batch = ForwardBatch((Span([4], 20, 1, (0, 1)), Span([9], 33, 1, (2, 3, 4))))
    found, expected = (
        model.forward(batch, filled(model, 16))
        for model in (random_model(geometry, tier, dtype, "int8") for tier in ("native", "aten"))
    )
    assert_agree(found, expected, TOLERANCES[dtype])


@pytest.mark.parametrize("rows", [4, 5, 7])
@pytest.mark.parametrize("threads", [2, 3, 5])
def test_the_number_of_threads_does_not_change_a_bit(threads: int, rows: int) -> None:
    # Weights large enough to be divided, by pieces that are not a multiple of the rows multiplied at once.
    model = random_model(Geometry(hidden=288, ffn=704, head_dim=16), "native")
    shared = tuple(range(12))
    batch = ForwardBatch(tuple(Span([row], 200 + row, 1, (*shared, 20 + row)) for row in range(rows)))
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    alone = model.forward(batch, filled(model, 16))
    torch.set_num_threads(threads)
    try:
        for _ in range(10):
            assert torch.equal(model.forward(batch, filled(model, 16)), alone)
    finally:
        torch.set_num_threads(before)


def test_only_the_rows_asked_for_get_logits() -> None:
    model = random_model(Geometry(), "native")
    spans = (Span([1, 2, 3], 0, 2, (0,)), Span([4], 0, 0, (1,)), Span([5, 6], 0, 1, (2,)))
    found = model.forward(ForwardBatch(spans), filled(model, 16))
    every = tuple(replace(span, logit_tokens=len(span.token_ids)) for span in spans)
    expected = model.forward(ForwardBatch(every), filled(model, 16))
    assert torch.equal(found, expected[[1, 2, 5]])
    none = tuple(replace(span, logit_tokens=0) for span in spans)
    assert model.forward(ForwardBatch(none), filled(model, 16)).shape == (0, model.config.vocab)


def test_what_another_sequence_left_in_a_block_is_never_read() -> None:
    model = random_model(Geometry(), "native")
    batch = ForwardBatch((Span([1], 5, 1, (4, 5)), Span([2], 30, 1, (0, 1, 2, 3, 7, 8, 9, 10))))
    kv = filled(model, 4)
    clean = model.forward(batch, kv)
    for layer in kv.storage.layers:
        layer[5 * 4 + 2 : 5 * 4 + 4] = torch.nan  # behind row 0's last token, in its own block
        layer[11 * 4 :] = torch.nan  # blocks of no one here
    assert torch.equal(model.forward(batch, kv), clean)


def test_numbers_that_are_none_reach_the_logits() -> None:
    model = random_model(Geometry(), "native")
    kv = filled(model, 16)
    kv.storage.layers[0][0] = torch.nan
    batch = ForwardBatch((Span([1], 20, 1, (0, 1)), Span([2], 20, 1, (2, 3))))
    finite = model.forward(batch, kv).isfinite().all(dim=1)
    assert finite.tolist() == [False, True]


@pytest.mark.parametrize(
    ("span", "error", "message"),
    [
        (Span([1, 2], 15, 1, (0,)), ValueError, "1 blocks, 2 are needed"),
        (Span([1], 0, 1, (POOL_BLOCKS,)), ValueError, "outside 0..339"),
        (Span([1], 0, 1, (-1,)), ValueError, "outside 0..339"),
        (Span([97], 0, 1, (0,)), IndexError, "outside 0..96"),
        (Span([-1], 0, 1, (0,)), IndexError, "outside 0..96"),
    ],
)
def test_what_does_not_fit_is_refused_before_a_kernel_sees_it(
    span: Span, error: type[Exception], message: str
) -> None:
    model = random_model(Geometry(), "native")
    with pytest.raises(error, match=message):
        model.forward(ForwardBatch((span,)), filled(model, 16))


def test_a_store_that_was_freed_is_refused() -> None:
    model = random_model(Geometry(), "native")
    batch = ForwardBatch((Span([1], 0, 1, (0,)),))
    kv = filled(model, 16)
    model.forward(batch, kv)
    kv.free()
    with pytest.raises(IndexError):
        model.forward(batch, kv)
