"""Tokens for a whole batch: a sequence with broken logits fails alone."""

from collections.abc import Mapping

from torch import Tensor

from runtime.errors import NonFiniteLogitsError, RuntimeFault
from runtime.model.sampler import SequenceSampler, sample


def draw(
    logits: Tensor, samplers: Mapping[int, SequenceSampler]
) -> tuple[dict[int, int], dict[int, RuntimeFault]]:
    """A token for every sequence whose logits are finite, and a NonFiniteLogitsError for every other.

    logits [n, vocab]: row i belongs to the i-th of `samplers`.
    """
    try:
        return dict(zip(samplers, sample(logits, list(samplers.values())), strict=True)), {}
    except NonFiniteLogitsError as error:
        named = set(error.sequence_ids)
    kept = [index for index, sampler in enumerate(samplers.values()) if sampler.sequence_id not in named]
    healthy = {key: sampler for key, sampler in samplers.items() if sampler.sequence_id not in named}
    sampled = sample(logits[kept], list(healthy.values()))
    faults: dict[int, RuntimeFault] = {
        key: NonFiniteLogitsError((sampler.sequence_id,))
        for key, sampler in samplers.items()
        if sampler.sequence_id in named
    }
    return dict(zip(healthy, sampled, strict=True)), faults
