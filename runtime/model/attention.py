"""Attention over keys and values in pieces, joined by their log-sum-exps.

The softmax over a union of key sets follows exactly from the softmax over each set and its log-sum-exp, so a
prefix that several sequences share can be read once for all of them (cascade attention; Juravsky et al.,
Hydragen, 2024; Ye et al., FlashInfer, 2025).
"""

import math

import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
from torch import Tensor


def partial_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Attention over one set of keys, and how much weight that set has.

    q [N, kv_heads, R, head_dim] (R: the query heads of each group, as rows); k, v [N, kv_heads, S, head_dim];
    bias [N, 1, 1, S] or None; -inf hides a key, each row must see one. Returns out, shaped as q, and
    lse [N, kv_heads, R].
    """
    if q.device.type == "cpu":
        return _flash_on_cpu(q, k, v, bias)
    return _written_out(q, k, v, bias)


def _flash_on_cpu(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    # The private operator behind scaled_dot_product_attention: only it also returns the log-sum-exp.
    mask = None if bias is None else bias.expand(q.shape[0], 1, q.shape[2], k.shape[2])
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    out, lse = flash(q, k, v, 0.0, False, attn_mask=mask)
    return out, lse


def _written_out(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    scores = (q @ k.transpose(-1, -2)).float() / math.sqrt(q.shape[-1])
    if bias is not None:
        scores = scores + bias
    lse = torch.logsumexp(scores, dim=-1)
    return torch.exp(scores - lse.unsqueeze(-1)).to(v.dtype) @ v, lse


def merge(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor) -> tuple[Tensor, Tensor]:
    """Attention over the union of two disjoint key sets from that over each: out [..., D], lse [...]."""
    weight_b = torch.sigmoid(lse_b - lse_a).unsqueeze(-1).to(out_a.dtype)
    return torch.lerp(out_a, out_b, weight_b), torch.logaddexp(lse_a, lse_b)


def causal_bias(new_tokens: int, context_tokens: int, like: Tensor) -> Tensor | None:
    """[new, context] mask to add for the last `new` positions; None where plain causal masking does."""
    if new_tokens in (1, context_tokens):
        return None
    hidden = torch.full((new_tokens, context_tokens), -math.inf, dtype=like.dtype, device=like.device)
    return hidden.triu_(context_tokens - new_tokens + 1)


def chunk_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Causal attention of the last T of S positions of one sequence.

    q [T, heads, head_dim]; k, v [S, kv_heads, head_dim]; bias from `causal_bias(T, S)`.
    Returns [T, heads * head_dim].
    """
    new_tokens, heads, head_dim = q.shape
    kv_heads = k.shape[1]
    # Batch = KV heads, heads = the group's query heads: K and V are broadcast with stride 0, never repeated
    # in memory, and enable_gqa (which repeats them on a CPU) is not needed.
    grouped = (kv_heads, heads // kv_heads)
    queries = q.view(new_tokens, *grouped, head_dim).permute(1, 2, 0, 3)
    keys = k.transpose(0, 1).unsqueeze(1).expand(*grouped, -1, -1)
    values = v.transpose(0, 1).unsqueeze(1).expand(*grouped, -1, -1)
    is_causal = bias is None and new_tokens > 1
    out = F.scaled_dot_product_attention(queries, keys, values, attn_mask=bias, is_causal=is_causal)
    return out.permute(2, 0, 1, 3).reshape(new_tokens, heads * head_dim)


def reference_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The oracle: causal attention of the last T of S positions, one query head at a time, in float64.

    Shapes as `chunk_attention`. Slow on purpose; used by tests and nowhere else.
    """
    new_tokens, heads, head_dim = q.shape
    context_tokens, kv_heads, _ = k.shape
    out = torch.empty(new_tokens, heads, head_dim, dtype=torch.float64)
    for row in range(new_tokens):
        visible = context_tokens - new_tokens + row + 1
        for head in range(heads):
            group = head // (heads // kv_heads)
            scores = k[:visible, group].double() @ q[row, head].double() / math.sqrt(head_dim)
            out[row, head] = torch.softmax(scores, dim=0) @ v[:visible, group].double()
    return out.view(new_tokens, heads * head_dim)
