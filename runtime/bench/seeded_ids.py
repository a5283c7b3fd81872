"""Prompts whose token ids come from a seed: equal work for every engine that reads the same numbers."""

import random
from collections.abc import Sequence

from contract.workload import Segment
from runtime.measured.prompts import PromptBook


class SeededIds:
    """Token ids for a text: drawn from the seed and the text, as many as the segment wants.

    Both ends of the vocabulary are left out: tokenizers keep their special tokens there.
    """

    def __init__(self, segments: Sequence[Segment], seed: int, vocab_size: int) -> None:
        self._tokens = {segment.text: segment.tokens for segment in segments}
        self._seed = seed
        self._first, self._end = vocab_size // 8, max(vocab_size // 8 + 1, vocab_size - vocab_size // 8)

    def encode(self, text: str) -> list[int]:
        """The ids; one for each word where the segment has no budget."""
        tokens = self._tokens.get(text) or len(text.split())
        # Seeded with the text, so that equal segments share and others do not. Not cryptography.
        draws = random.Random(f"{self._seed}:{text}")
        return [draws.randrange(self._first, self._end) for _ in range(max(1, tokens))]


def seeded_prompts(segments: Sequence[Segment], seed: int, vocab_size: int) -> PromptBook:
    """Every segment's ids for a model with `vocab_size` tokens."""
    return PromptBook(segments, SeededIds(segments, seed, vocab_size))
