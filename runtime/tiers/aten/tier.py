"""The aten tier: torch's own operators, layer by layer. It runs wherever torch does."""

from typing import Literal

from torch import Tensor

from runtime.model.decoder_weights import DecoderWeights
from runtime.model.forward_batch import ForwardBatch, KVStore, StepAttention
from runtime.model.linear import WeightDtype
from runtime.model.numeric import Placement
from runtime.tiers.aten.linear import linear_maker

__all__ = ["AtenTier", "linear_maker", "open_tier", "why_not_here"]


def why_not_here(placement: Placement, weight_dtype: WeightDtype) -> str | None:
    """None: it is always there."""
    return None


def open_tier(weights: DecoderWeights) -> "AtenTier":
    """Needs nothing of the weights."""
    return AtenTier()


class AtenTier:
    """Leaves every batch to the layers."""

    name: Literal["aten"] = "aten"

    def step(self, batch: ForwardBatch, kv: KVStore) -> Tensor | None:
        """None: always layer by layer."""
        return None

    def attention(self, batch: ForwardBatch, kv: KVStore) -> StepAttention:
        """As the store plans it."""
        return kv.begin(batch)
