"""The next token from logits. A sequence's draws depend on its own logits and seed, never on its batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from runtime.errors import (
    InvalidSamplingParameterError,
    NonFiniteLogitsError,
    UnknownSamplingParameterError,
)

_NUCLEUS_GUESS: Final = 1024


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen. temperature 0 is greedy, and the seed counts only above 0.

    Filters apply in this order: top_k (0: off), top_p (1: off), min_p (0: off; relative to the likeliest).
    InvalidSamplingParameterError for a value outside its range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        # Each test is false for NaN, so NaN is refused as well.
        ranges = {
            "temperature": (0 <= self.temperature <= 10, "must lie in 0..10"),
            "top_k": (self.top_k >= 0, "must be 0 or more"),
            "top_p": (0 < self.top_p <= 1, "must lie above 0 and up to 1"),
            "min_p": (0 <= self.min_p < 1, "must lie in 0 up to but not 1"),
            "seed": (0 <= self.seed < 2**63, "must lie in 0..2^63-1"),
        }
        for name, (is_inside, rule) in ranges.items():
            if not is_inside:
                raise InvalidSamplingParameterError(name, f"{rule}, it is {getattr(self, name)}")

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> "SamplingParams":
        """From a mapping; UnknownSamplingParameterError names the first key that is none of the fields."""
        known = {field.name: field.type for field in fields(cls)}
        for key, value in values.items():
            if key not in known:
                raise UnknownSamplingParameterError(key, tuple(known))
            numbers = int if known[key] is int else (int, float)
            if isinstance(value, bool) or not isinstance(value, numbers):
                raise InvalidSamplingParameterError(key, f"is not a number of its type: {value!r}")
        return cls(**values)


class SequenceSampler:
    """One sequence's parameters and random stream: exactly one uniform draw per sampled token."""

    def __init__(self, sequence_id: str, params: SamplingParams) -> None:
        self.sequence_id = sequence_id
        self.params = params
        self._generator = torch.Generator().manual_seed(params.seed)

    def draw(self, logits: Tensor) -> int:
        """Token id by inverse transform over the filtered distribution of logits [vocab], in float64."""
        probabilities, token_ids = self._filtered(logits.detach().to("cpu", torch.float64))
        uniform = torch.rand((), generator=self._generator, dtype=torch.float64)
        cumulative = probabilities.cumsum(0)
        # Rounding may leave the last sum a little below the draw's upper end.
        index = int(torch.searchsorted(cumulative, uniform * cumulative[-1], right=True))
        return int(token_ids[min(index, len(token_ids) - 1)])

    def _filtered(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities of the kept tokens and their ids."""
        token_ids = torch.arange(len(logits))
        if 0 < self.params.top_k < len(logits):
            logits, token_ids = torch.topk(logits, self.params.top_k)
        probabilities = torch.softmax(logits / self.params.temperature, dim=0)
        kept = probabilities >= self.params.min_p * probabilities.max()
        if self.params.top_p < 1:
            kept &= _nucleus(probabilities, self.params.top_p)
        return probabilities[kept], token_ids[kept]


def _nucleus(probabilities: Tensor, top_p: float) -> Tensor:
    """Mask of the likeliest tokens before which top_p is not reached; the likeliest one always is inside."""
    # A whole vocabulary takes 6 ms to sort, and nearly every nucleus is small.
    values, order = torch.topk(probabilities, min(_NUCLEUS_GUESS, len(probabilities)))
    if values.sum() < top_p:
        values, order = torch.sort(probabilities, descending=True)
    before = values.cumsum(0) - values
    inside = torch.zeros(len(probabilities), dtype=torch.bool)
    inside[order[before < top_p]] = True
    return inside


def _likeliest(logits: Tensor) -> tuple[list[int], list[bool]]:
    """Of each row the lowest id of its largest logit, and whether all its logits are finite."""
    if logits.device.type != "cpu" or logits.dtype != torch.float32:
        # Both in one tensor: a device is waited for once a step.
        finite = torch.isfinite(logits).all(dim=-1)
        tokens, is_finite = torch.stack((logits.argmax(dim=-1), finite.long())).tolist()
        return tokens, [bool(flag) for flag in is_finite]
    # numpy runs on this thread alone. torch would wake its own, which then stay awake beside a native step.
    rows = logits.numpy()
    return rows.argmax(axis=-1).tolist(), np.isfinite(rows).all(axis=-1).tolist()


@torch.inference_mode()
def sample(logits: Tensor, samplers: Sequence[SequenceSampler]) -> list[int]:
    """One token id per row of logits [R, vocab], row i for samplers[i]; greedy ties go to the lowest id.

    NonFiniteLogitsError names the sequences with NaN or infinity before anything is drawn, so the others
    can be sampled again without them.
    """
    if len(logits) != len(samplers):
        raise ValueError(f"{len(logits)} rows of logits for {len(samplers)} sequences")
    if not samplers:
        return []
    likeliest, finite = _likeliest(logits)
    if not all(finite):
        pairs = zip(samplers, finite, strict=True)
        raise NonFiniteLogitsError(
            tuple(sampler.sequence_id for sampler, is_finite in pairs if not is_finite)
        )
    return [
        token if sampler.params.temperature == 0 else sampler.draw(row)
        for sampler, token, row in zip(samplers, likeliest, logits, strict=True)
    ]
