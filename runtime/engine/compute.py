"""Where and with what is computed: device, kernels and precision, decided before the model is loaded."""

from dataclasses import dataclass
from typing import Any

from contract.jobs import EngineOptions
from runtime.host.machine import Machine
from runtime.model.linear import WeightDtype
from runtime.model.numeric import Placement
from runtime.tiers.choice import TierChoice, choose_tier
from runtime.tiers.cuda import tier as cuda_tier


@dataclass(frozen=True, slots=True)
class ComputeSetup:
    """Equal setups can share one model in memory."""

    dtype: str
    placement: Placement
    tier: TierChoice
    weight_dtype: WeightDtype

    @property
    def device_memory_bytes(self) -> int | None:
        """Memory of the device's own, where model and KV must fit; None where it is the machine's."""
        if self.placement.device.type != "cuda":
            return None
        return cuda_tier.device_memory_bytes(self.placement.device)

    def as_conditions(self) -> dict[str, Any]:
        """What runs, and what a faster tier would have given, for the conditions."""
        device = self.placement.device
        facts = {
            "device": device.type,
            "tier": self.tier.name,
            "tier_lost": self.tier.lost or "",
            "dtype": self.dtype,
            "weight_dtype": self.weight_dtype,
        }
        if device.type == "cuda":
            facts |= cuda_tier.device_facts(device)
        return facts


def decide_compute(engine: EngineOptions, machine: Machine) -> ComputeSetup:
    """BadAttemptSpecError for a device that is not here or a tier that does not run on it."""
    device = engine.device
    if device == "auto":
        device = "cuda" if cuda_tier.has_device() else "cpu"
    dtype = chosen_dtype(engine, device, machine)
    placement = Placement.named(dtype, device)
    tier = choose_tier(engine.tier, placement, engine.weight_dtype)
    return ComputeSetup(dtype, placement, tier, engine.weight_dtype)


def chosen_dtype(engine: EngineOptions, device: str, machine: Machine) -> str:
    """The precision asked for; auto is bfloat16 where the processor computes it natively, else float32."""
    if engine.dtype != "auto":
        return engine.dtype
    return "bfloat16" if device == "cuda" or (device == "cpu" and machine.has_bf16) else "float32"
