"""Every path through attention agrees with one written without any cleverness."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from runtime.model.attention import (
    _written_out,
    causal_bias,
    chunk_attention,
    merge,
    partial_attention,
    reference_attention,
)
from runtime.model.forward_batch import ForwardBatch, Span
from runtime.model.paged_attention import PagedAttention

HEADS, KV_HEADS, HEAD_DIM = 6, 2, 8


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize(("new", "context"), [(1, 1), (1, 37), (9, 9), (5, 37), (36, 37)])
def test_a_chunk_agrees_with_the_reference(new: int, context: int) -> None:
    q, k, v = random(new, HEADS, HEAD_DIM), random(context, KV_HEADS, HEAD_DIM), random(context, 2, 8) * 2
    found = chunk_attention(q, k, v, causal_bias(new, context, q))
    torch.testing.assert_close(found.double(), reference_attention(q, k, v), atol=1e-5, rtol=1e-5)


def test_both_partial_attentions_agree_and_hide_what_the_bias_hides() -> None:
    q, k, v = random(3, KV_HEADS, 3, HEAD_DIM), random(3, KV_HEADS, 20, HEAD_DIM), random(3, 2, 20, 8)
    bias = torch.zeros(3, 1, 1, 20)
    bias[1, :, :, 4:] = -math.inf
    for found, expected in zip(partial_attention(q, k, v, bias), _written_out(q, k, v, bias), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    alone, _ = partial_attention(q[1:2], k[1:2, :, :4], v[1:2, :, :4], None)
    torch.testing.assert_close(partial_attention(q, k, v, bias)[0][1:2], alone, atol=1e-5, rtol=1e-5)


def test_merging_two_key_sets_is_attention_over_both() -> None:
    q, k, v = random(2, KV_HEADS, 3, HEAD_DIM), random(2, KV_HEADS, 20, HEAD_DIM), random(2, 2, 20, 8)
    first = partial_attention(q, k[:, :, :7], v[:, :, :7], None)
    second = partial_attention(q, k[:, :, 7:], v[:, :, 7:], None)
    for found, expected in zip(merge(*first, *second), partial_attention(q, k, v, None), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@settings(max_examples=60)
@given(
    shared_blocks=st.integers(0, 5),
    nested_blocks=st.integers(0, 3),
    own_tokens=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    block_tokens=st.sampled_from([1, 4, 16]),
    prefill_tokens=st.sampled_from([0, 2, 11]),
)
def test_cascade_over_block_tables_agrees_with_the_reference(
    shared_blocks: int,
    nested_blocks: int,
    own_tokens: list[int],
    block_tokens: int,
    prefill_tokens: int,
) -> None:
    """Row 0 and 1 share more than the others do; a prefill may stand behind the decodes."""
    fresh = iter(torch.randperm(400, generator=torch.Generator().manual_seed(1)).tolist())
    common = [next(fresh) for _ in range(shared_blocks)]
    nested = [next(fresh) for _ in range(nested_blocks)]
    spans = []
    for row, tokens in enumerate(own_tokens):
        start = common + nested if row < 2 else common
        table = start + [next(fresh) for _ in range(-(-tokens // block_tokens))]
        spans.append(Span([0], len(start) * block_tokens + tokens - 1, 1, table))
    if prefill_tokens:
        table = common + [next(fresh) for _ in range(-(-prefill_tokens // block_tokens))]
        spans.append(Span([0] * prefill_tokens, shared_blocks * block_tokens, 1, table))
    batch = ForwardBatch(tuple(spans))
    pool = random(400 * block_tokens, 2, KV_HEADS, HEAD_DIM)
    q, kv = random(batch.tokens, HEADS, HEAD_DIM), random(batch.tokens, 2, KV_HEADS, HEAD_DIM)
    found = PagedAttention([pool], block_tokens, batch, min_saved_tokens=1).attend(0, q, kv)
    row = 0
    for span in spans:
        rows = slice(row, row + len(span.token_ids))
        row = rows.stop
        held = torch.cat([pool[block * block_tokens :][:block_tokens] for block in span.block_table])
        held = held[: span.context_tokens]
        assert torch.equal(held[span.start_tokens :], kv[rows]), "the new tokens lie in their slots"
        expected = reference_attention(q[rows], held[:, 0], held[:, 1])
        torch.testing.assert_close(found[rows].double(), expected, atol=1e-5, rtol=1e-5)


def test_a_shared_run_is_read_once_for_all_rows_and_nothing_else_is_merged() -> None:
    pool = random(64 * 16, 2, KV_HEADS, HEAD_DIM)
    spans = tuple(Span([0], 130 + row, 1, [0, 1, 2, 3, 4, 5, 6, 7, 20 + row]) for row in range(5))
    attention = PagedAttention([pool], 16, ForwardBatch(spans))
    assert [(run.rows, run.blocks) for run in attention.shared_runs] == [
        ((0, 1, 2, 3, 4), (0, 1, 2, 3, 4, 5, 6, 7))
    ]
    unshared = tuple(Span([0], 30, 1, [2 * row, 2 * row + 1]) for row in range(5))
    assert PagedAttention([pool], 16, ForwardBatch(unshared)).shared_runs == ()


def test_what_another_sequence_left_in_a_block_is_never_read() -> None:
    pool = random(12 * 4, 2, KV_HEADS, HEAD_DIM)
    pool[5 * 4 + 2 :][:2] = math.nan  # behind row 0's last token, in its own block
    pool[9 * 4 :] = math.nan  # blocks of no one here
    spans = (Span([0], 5, 1, [4, 5]), Span([0], 14, 1, [0, 1, 2, 3]))
    attention = PagedAttention([pool], 4, ForwardBatch(spans))
    out = attention.attend(0, random(2, HEADS, HEAD_DIM), random(2, 2, KV_HEADS, HEAD_DIM))
    assert torch.isfinite(out).all()
