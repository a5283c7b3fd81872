"""Which kernels compute: a tier is chosen before the weights are read, and opened over them."""

from dataclasses import dataclass
from typing import Literal, Protocol, cast

from torch import Tensor

from runtime.errors import BadAttemptSpecError
from runtime.model.cuda import tier as cuda_tier
from runtime.model.decoder_weights import DecoderWeights
from runtime.model.forward_batch import ForwardBatch, KVStore, StepAttention
from runtime.model.linear import LinearMaker, PlainLinear, WeightDtype, make_int8_linear, make_packed_linear
from runtime.model.numeric import Placement
from runtime.native import linear as native_linear
from runtime.native import tier as native_tier

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


@dataclass(frozen=True, slots=True)
class TierChoice:
    """lost: one line about what faster kernels would have given and why they are not there, or None."""

    name: TierName
    lost: str | None = None


ATEN = TierChoice("aten")


def choose_tier(asked: str, placement: Placement, weight_dtype: WeightDtype = "auto") -> TierChoice:
    """The fastest tier that works here for `auto`; a named one, or aten with what that loses.

    BadAttemptSpecError for a tier that has nothing to do with the placement's device. May compile, once.
    """
    homes = {"aten": placement.device.type, "native": "cpu", "cuda": "cuda"}
    if asked == "auto":
        asked = {"cpu": "native", "cuda": "cuda"}.get(placement.device.type, "aten")
    if homes.get(asked) != placement.device.type:
        raise BadAttemptSpecError("tier", f"{asked!r} does not run on {placement.device.type}")
    lost = _why_not(cast(TierName, asked), placement, weight_dtype)
    if lost is not None:
        return TierChoice("aten", lost)
    return TierChoice(cast(TierName, asked), _why_slower(cast(TierName, asked), placement))


def _why_not(name: TierName, placement: Placement, weight_dtype: WeightDtype) -> str | None:
    if name == "native":
        reason = native_tier.why_not_here(placement, weight_dtype)
        return None if reason is None else f"no native tier, decoding is several times slower: {reason}"
    if name == "cuda":
        reason = cuda_tier.why_not_here(weight_dtype)
        return None if reason is None else f"no cuda tier, decoding is several times slower: {reason}"
    return None


def _why_slower(name: TierName, placement: Placement) -> str | None:
    """A tier that is there may lack its fastest kernels."""
    reason = cuda_tier.why_slower(placement) if name == "cuda" else None
    return None if reason is None else f"a decode step's products run as single kernels, slower: {reason}"


def linear_maker(tier: TierName, placement: Placement, weight_dtype: WeightDtype) -> LinearMaker:
    """How `tier` keeps the weights of linear layers; one copy each."""
    if tier == "native":
        return native_linear.linear_maker(placement, weight_dtype)
    if weight_dtype == "int8":
        return make_int8_linear
    # Packed weights are torch's own layout: no other tier could read them.
    return make_packed_linear if tier == "aten" and placement.device.type == "cpu" else PlainLinear


def open_tier(choice: TierChoice, weights: DecoderWeights) -> Tier:
    """The chosen kernels over `weights`, which must have been made with its `linear_maker`."""
    if choice.name == "native":
        return native_tier.NativeTier(weights)
    if choice.name == "cuda":
        return cuda_tier.CudaTier(weights)
    return AtenTier()


class AtenTier:
    """torch's own operators, layer by layer: runs wherever torch does."""

    name: TierName = "aten"

    def step(self, batch: ForwardBatch, kv: KVStore) -> Tensor | None:
        """None: always layer by layer."""
        return None

    def attention(self, batch: ForwardBatch, kv: KVStore) -> StepAttention:
        """As the store plans it."""
        return kv.begin(batch)
