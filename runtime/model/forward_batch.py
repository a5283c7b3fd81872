"""One forward pass as data: which new tokens, of which sequences, behind what they already hold."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Span:
    """New tokens of one sequence.

    start_tokens: tokens its KV holds already. logit_tokens: for how many of the span's last tokens logits
    are wanted (0 for a chunk in the middle of a prompt). block_table: all its blocks, also those that this
    span fills; empty for the contiguous arm.
    """

    token_ids: Sequence[int]
    start_tokens: int
    logit_tokens: int = 1
    block_table: Sequence[int] = ()

    @property
    def context_tokens(self) -> int:
        return self.start_tokens + len(self.token_ids)


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """Spans in row order; ValueError when one is empty or asks for more logits than it has tokens.

    Leading one-token spans are attended together (decode); all others one by one (prefill). Any order
    gives the same numbers; decodes first is the fast one.
    """

    spans: tuple[Span, ...]

    def __post_init__(self) -> None:
        if not self.spans:
            raise ValueError("a forward batch needs at least one span")
        for index, span in enumerate(self.spans):
            if (
                not 0 <= span.logit_tokens <= len(span.token_ids)
                or not span.token_ids
                or span.start_tokens < 0
            ):
                raise ValueError(
                    f"span {index}: {len(span.token_ids)} tokens from {span.start_tokens}, "
                    f"logits for {span.logit_tokens}"
                )

    @property
    def tokens(self) -> int:
        return sum(len(span.token_ids) for span in self.spans)

    @property
    def decode_rows(self) -> int:
        """How many leading spans have one token."""
        for count, span in enumerate(self.spans):
            if len(span.token_ids) > 1:
                return count
        return len(self.spans)

    def logit_rows(self) -> list[int]:
        """Batch rows whose logits are wanted, in the order in which the forward returns them."""
        rows: list[int] = []
        end = 0
        for span in self.spans:
            end += len(span.token_ids)
            rows.extend(range(end - span.logit_tokens, end))
        return rows


class StepAttention(Protocol):
    """Attention of one forward pass: where its rows are written and what they may see is already planned."""

    def attend(self, layer: int, q: Tensor, kv: Tensor) -> Tensor:
        """Store kv [T, 2, kv_heads, head_dim], then attend causally with q [T, heads, head_dim].

        Returns [T, heads * head_dim].
        """
        ...


@dataclass(frozen=True, slots=True)
class KVStorage:
    """The tensors of a store: per layer [slots, 2, kv_heads, head_dim]; a freed store has no layers.

    Position p of a sequence is slot block_table[p // block_tokens] * block_tokens + p % block_tokens.
    """

    layers: list[Tensor]
    block_tokens: int


class KVStore(Protocol):
    """Keys and values of sequences; the two arms differ in nothing else."""

    @property
    def storage(self) -> KVStorage: ...

    def block_tables(self, batch: ForwardBatch) -> Sequence[Sequence[int]]:
        """The block table of each span; ValueError when one does not fit the store."""
        ...

    def begin(self, batch: ForwardBatch) -> StepAttention:
        """Plan the attention of this batch once for all layers."""
        ...
