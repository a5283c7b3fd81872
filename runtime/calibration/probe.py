"""The work by which options are measured: prefills of one prompt, decode steps of agents with one prefix."""

import time
from dataclasses import dataclass
from typing import Final

from runtime.measured.options import DEFAULT_PREFILL_CHUNK_TOKENS
from runtime.model.forward_batch import ForwardBatch, Span
from runtime.model.llama import LlamaModel
from runtime.model.paged_kv import PagedKV

_BLOCK_TOKENS: Final = 32
_SHARED_TOKENS: Final = 512
_PROMPT_TOKENS: Final = 1024
_KINDS_OF_TOKEN: Final = 128
MAX_STEPS: Final = _BLOCK_TOKENS
"""An agent's own tokens of one measurement stay in its one own block."""


@dataclass(frozen=True, slots=True)
class ProbeSizes:
    """prompt_tokens: the longest prefill. shared_tokens: context of every decode step. sequences: at once."""

    prompt_tokens: int
    shared_tokens: int
    sequences: int

    @property
    def blocks(self) -> int:
        """Of the pool that all measurements take in turn."""
        own = self.shared_tokens // _BLOCK_TOKENS + self.sequences
        return max(own, -(-self.prompt_tokens // _BLOCK_TOKENS))


def probe_sizes(model: LlamaModel, sequences: int, pool_bytes: int) -> ProbeSizes:
    """As large as the model's context and `pool_bytes` allow, at least one block and one sequence."""
    context_tokens = model.config.context_tokens
    block_bytes = model.config.kv_format(model.placement.value_bytes).block_bytes(_BLOCK_TOKENS)
    blocks = max(2, pool_bytes // block_bytes)
    shared = min(_SHARED_TOKENS, context_tokens // 2, blocks // 2 * _BLOCK_TOKENS)
    shared -= shared % _BLOCK_TOKENS
    return ProbeSizes(
        prompt_tokens=max(1, min(_PROMPT_TOKENS, context_tokens - 1, blocks * _BLOCK_TOKENS)),
        shared_tokens=shared,
        sequences=max(1, min(sequences, blocks - shared // _BLOCK_TOKENS)),
    )


class SpeedProbe:
    """Measures one model with the threads that are set when a method is called. `close` frees its pool."""

    def __init__(self, model: LlamaModel, sizes: ProbeSizes) -> None:
        self.model = model
        self.sizes = sizes
        self._kv = PagedKV(model.config, sizes.blocks, _BLOCK_TOKENS, model.placement)
        self._kinds = min(_KINDS_OF_TOKEN, model.config.vocab)
        self._prompt = [position % self._kinds for position in range(sizes.prompt_tokens)]
        # What decode steps attend to is computed once, so that no tier meets numbers that nobody wrote.
        self.prefill_s(max(1, sizes.shared_tokens), DEFAULT_PREFILL_CHUNK_TOKENS)

    def close(self) -> None:
        """Frees the pool."""
        self._kv.free()

    def prefill_s(self, tokens: int, chunk_tokens: int) -> float:
        """Seconds for a prompt's first `tokens` in chunks of `chunk_tokens`, to its first sampled token."""
        table = tuple(range(-(-tokens // _BLOCK_TOKENS)))
        began_ns = time.monotonic_ns()
        for start in range(0, tokens, chunk_tokens):
            stop = min(tokens, start + chunk_tokens)
            span = Span(self._prompt[start:stop], start, int(stop == tokens), table)
            logits = self.model.forward(ForwardBatch((span,)), self._kv)
        # The values come to Python, as in an attempt: a device that computes on its own is waited for.
        logits.argmax(-1).tolist()
        return (time.monotonic_ns() - began_ns) / 1e9

    def decode_step_s(self, sequences: int, steps: int) -> float:
        """Seconds per step of `steps` decode steps of so many sequences behind the shared tokens."""
        shared = self.sizes.shared_tokens // _BLOCK_TOKENS
        tables = [(*range(shared), shared + number) for number in range(sequences)]
        tokens = [0] * sequences
        began_ns = time.monotonic_ns()
        for step in range(steps):
            start = self.sizes.shared_tokens + step
            spans = tuple(
                Span([token % self._kinds], start, 1, table)
                for token, table in zip(tokens, tables, strict=True)
            )
            tokens = self.model.forward(ForwardBatch(spans), self._kv).argmax(-1).tolist()
        return (time.monotonic_ns() - began_ns) / 1e9 / steps
