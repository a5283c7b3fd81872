"""Which kernels compute: a tier is chosen before the weights are read, and opened over them."""

from dataclasses import dataclass
from typing import Final, Protocol, cast

from runtime.errors import BadAttemptSpecError
from runtime.model.decoder_weights import DecoderWeights
from runtime.model.linear import LinearMaker, WeightDtype
from runtime.model.llama import LlamaModel
from runtime.model.numeric import Placement
from runtime.model.tier import Tier, TierName
from runtime.model.weights import WeightSource
from runtime.tiers.aten import tier as aten_tier
from runtime.tiers.cuda import tier as cuda_tier
from runtime.tiers.native import tier as native_tier


class _TierModule(Protocol):
    """What each tier's module `tier` has."""

    def why_not_here(self, placement: Placement, weight_dtype: WeightDtype) -> str | None:
        """What this machine lacks for it, in one line; None where it works. May compile, once."""
        ...

    def linear_maker(self, placement: Placement, weight_dtype: WeightDtype) -> LinearMaker:
        """How it keeps the weights of linear layers; one copy each."""
        ...

    def open_tier(self, weights: DecoderWeights) -> Tier:
        """Its kernels over weights made with its `linear_maker`."""
        ...


_TIERS: Final[dict[TierName, _TierModule]] = {
    "aten": aten_tier,
    "native": native_tier,
    "cuda": cuda_tier,
}
_FASTEST: Final[dict[str, TierName]] = {"cpu": "native", "cuda": "cuda"}


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
    device = placement.device.type
    fastest = _FASTEST.get(device, "aten")
    if asked not in ("auto", "aten", fastest):
        raise BadAttemptSpecError("tier", f"{asked!r} does not run on {device}")
    name = fastest if asked == "auto" else cast(TierName, asked)
    reason = _TIERS[name].why_not_here(placement, weight_dtype)
    if reason is not None:
        return TierChoice("aten", f"no {name} tier, decoding is several times slower: {reason}")
    return TierChoice(name, _why_slower(name, placement))


def _why_slower(name: TierName, placement: Placement) -> str | None:
    """A tier that is there may lack its fastest kernels."""
    reason = cuda_tier.why_slower(placement) if name == "cuda" else None
    return None if reason is None else f"a decode step's products run as single kernels, slower: {reason}"


def build_model(
    source: WeightSource,
    placement: Placement,
    choice: TierChoice = ATEN,
    weight_dtype: WeightDtype = "auto",
) -> LlamaModel:
    """Reads every weight of `source` once, in the form that the chosen kernels read."""
    tier = _TIERS[choice.name]
    weights = DecoderWeights.read(source, placement, tier.linear_maker(placement, weight_dtype))
    return LlamaModel(weights, tier.open_tier(weights))
