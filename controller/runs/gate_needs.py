"""What a gate's metrics need of a run: one that can have no value is refused before anything is measured."""

from collections.abc import Sequence
from typing import Final

from contract.jobs import ArmSpec
from contract.metrics import METRICS, Need
from contract.rest import RunRequest
from contract.states import TargetKind
from contract.workload import CompiledWorkload
from controller.errors import BadRequestError

_ADVICE: Final = {
    Need.TWO_OUTPUT_TOKENS: "needs a call of two output tokens or more; raise output_tokens, or take e2e_ms",
    Need.KV_POOL: "needs a KV pool in both arms, and a serial arm has none; compare with serial_cached",
    Need.MEMORY_LIMIT: "needs a memory limit, which a host may lack; set engine.memory_limit_bytes",
}


def check_gate_needs(
    request: RunRequest, arms: Sequence[ArmSpec], workloads: Sequence[CompiledWorkload]
) -> None:
    """BadRequestError for the first gate metric that an arm or a variant of the workload cannot have."""
    if request.baseline == request.candidate:
        return
    compared = [arm for arm in arms if arm.arm in (request.baseline, request.candidate)]
    on_hosts = any(selector.kind is TargetKind.HOST for selector in request.selectors)
    missing = {
        Need.TWO_OUTPUT_TOKENS: any(_longest_output_tokens(workload) < 2 for workload in workloads),
        Need.KV_POOL: any(arm.mode == "serial" for arm in compared),
        Need.MEMORY_LIMIT: on_hosts and any(arm.engine.memory_limit_bytes is None for arm in compared),
    }
    for position, name in enumerate(request.gate.metrics):
        need = METRICS[name].needs
        if need is not None and missing[need]:
            raise BadRequestError(f"/gate/metrics/{position}", f"{name} {_ADVICE[need]}")


def _longest_output_tokens(workload: CompiledWorkload) -> int:
    return max(call.max_output_tokens for plan in workload.agents for call in plan.calls)
