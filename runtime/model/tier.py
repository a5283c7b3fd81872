"""What the decoder asks of kernels; runtime/tiers has those that answer."""

from typing import Literal, Protocol

from torch import Tensor

from runtime.model.forward_batch import ForwardBatch, KVStore, StepAttention

TierName = Literal["aten", "native", "cuda"]


class Tier(Protocol):
    """Kernels over one model's weights. All tiers give the same numbers; they differ in speed."""

    @property
    def name(self) -> TierName: ...

    def step(self, batch: ForwardBatch, kv: KVStore) -> Tensor | None:
        """The whole pass: logits as `LlamaModel.forward`; None for a batch that it leaves to the layers.

        Positions were checked against the context; block tables were not checked yet.
        """
        ...

    def attention(self, batch: ForwardBatch, kv: KVStore) -> StepAttention:
        """The attention of one pass that goes layer by layer."""
        ...
