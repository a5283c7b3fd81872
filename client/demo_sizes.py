"""How large the demo is. Every figure of it stands here, once."""

from dataclasses import dataclass
from typing import Final

from contract.home import BUILT_IN_MODEL
from contract.jobs import EngineOptions
from contract.rest import ArmRequest, DeviceSelector, GateRequest, RunRequest, WorkloadRequest
from contract.states import TargetKind

MODEL: Final = BUILT_IN_MODEL
WORKLOAD: Final = "shared-prefix"
LABEL: Final = "purpose"
LABEL_VALUE: Final = "demo"
BASELINE: Final = "serial"
CANDIDATE: Final = "paged"
AGENTS: Final = 5
PREFIX_TOKENS: Final = 128
# As in the articles; a serial trial of it takes minutes on two cores.
FULL_PREFIX_TOKENS: Final = 2000
CALLS: Final = 3
GENERATED_TOKENS: Final = 12
# The sign-flip test over 5 pairs can reach p = 1/32; with 4 it could never be below 0.05.
PAIRS: Final = 5
WARMUPS: Final = 1


# Two emulated devices share this machine: each gets less to do, and its part of the cores.
VIRTUAL_CALLS: Final = 2
VIRTUAL_GENERATED_TOKENS: Final = 8


@dataclass(frozen=True, slots=True)
class DemoSizes:
    """Sizes of one demo. generated_tokens: each call writes so many, whatever the model would say."""

    agents: int = AGENTS
    prefix_tokens: int = PREFIX_TOKENS
    calls: int = CALLS
    generated_tokens: int = GENERATED_TOKENS
    pairs: int = PAIRS
    warmups: int = WARMUPS
    threads: int | None = None
    """Of each runtime; None: it chooses."""

    @property
    def calls_of_a_trial(self) -> int:
        """Calls of all agents."""
        return self.agents * self.calls


def demo_request(sizes: DemoSizes, *device_ids: str, kind: TargetKind = TargetKind.HOST) -> RunRequest:
    """The run of the demo: the serial arm against the paged arm in float32 on each of the devices."""
    return RunRequest(
        workload=WorkloadRequest(
            name=WORKLOAD,
            params={
                "agents": sizes.agents,
                "prefix_tokens": sizes.prefix_tokens,
                "calls": sizes.calls,
                "generated_tokens": sizes.generated_tokens,
            },
        ),
        model=MODEL,
        selectors=[DeviceSelector(kind=kind, device_id=device_id) for device_id in device_ids],
        arms=[ArmRequest(arm=BASELINE, mode="serial"), ArmRequest(arm=CANDIDATE, mode="paged")],
        baseline=BASELINE,
        candidate=CANDIDATE,
        repetitions=sizes.pairs,
        warmups=sizes.warmups,
        engine=EngineOptions(dtype="float32", threads=sizes.threads),
        gate=GateRequest(metrics=["wall_s"]),
        labels={LABEL: LABEL_VALUE},
    )
