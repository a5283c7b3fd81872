"""From a request to all that can be known without the store: task graphs, arms, trials. Every mistake of the
person who submits is found here, before anything is stored, with the field that is wrong."""

import hashlib
from dataclasses import dataclass
from typing import Final

from contract.jobs import ArmSpec, TrialSpec
from contract.metrics import METRICS
from contract.rest import GateRequest, RunRequest
from contract.states import TargetKind
from contract.workload import CompiledWorkload, largest_sequence_tokens
from controller.errors import BadRequestError
from controller.runs.errors import BudgetTooSmallError
from controller.runs.gate_needs import check_gate_needs
from controller.runs.plan import plan_run, resolve_arms
from measures.verdict.metric_verdicts import can_gate
from workloads import WorkloadError, compile_request

MAX_JOBS: Final = 128


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A request that can run as far as anybody can know without looking at devices."""

    request: RunRequest
    workloads: tuple[CompiledWorkload, ...]
    arms: tuple[ArmSpec, ...]
    trials: tuple[TrialSpec, ...]

    @property
    def digest(self) -> str:
        """The workload's digest; of a sweep, that of all its digests in order."""
        digests = [workload.digest for workload in self.workloads]
        if len(digests) == 1:
            return digests[0]
        return f"sha256:{hashlib.sha256(' '.join(digests).encode()).hexdigest()}"


def prepare(request: RunRequest) -> PreparedRun:
    """Compile and check; BadRequestError (or one of its kind) names the first wrong field."""
    _check_gate(request.gate)
    _check_kinds(request)
    arms = resolve_arms(request)
    compiled = _compile(request)
    check_gate_needs(request, arms, compiled)
    jobs = len(compiled) * len(request.selectors)
    if jobs > MAX_JOBS:
        raise BadRequestError(
            "/selectors", f"{len(compiled)} variants on {len(request.selectors)} selectors make {jobs} jobs, "
            f"at most {MAX_JOBS} are allowed; split the run",
        )  # fmt: skip
    for workload in compiled:
        _check_budgets(request, arms, workload)
    return PreparedRun(request, tuple(compiled), tuple(arms), tuple(plan_run(request)))


def _compile(request: RunRequest) -> list[CompiledWorkload]:
    try:
        return compile_request(request.workload)
    except WorkloadError as error:
        raise BadRequestError(_workload_pointer(error, request), str(error)) from error


def _workload_pointer(error: WorkloadError, request: RunRequest) -> str:
    """The field of the request; a mistake inside a sent file points to the file, its text has the line."""
    if error.field.startswith("params.") and error.line is None:
        return f"/workload/{error.field.replace('.', '/')}"
    if error.field == "workload" and error.line is None:
        return "/workload"
    if request.workload.source is not None:
        return "/workload/source"
    return "/workload/name" if error.field == "workload.name" else "/workload"


def _check_kinds(request: RunRequest) -> None:
    for position, selector in enumerate(request.selectors):
        if selector.kind is TargetKind.ENDPOINT:
            raise BadRequestError(
                f"/selectors/{position}/kind", "no device is an endpoint yet; choose host, ios or virtual"
            )


def _check_gate(gate: GateRequest) -> None:
    usable = [name for name, definition in METRICS.items() if can_gate(definition)]
    for position, name in enumerate(gate.metrics):
        if name in gate.metrics[:position]:
            raise BadRequestError(f"/gate/metrics/{position}", f"{name!r} is named twice; name it once")
        if name in usable:
            continue
        problem = f"no metric is called {name!r}"
        if name in METRICS:
            problem = f"{name} is a count or a share, of which no ratio can be judged"
        raise BadRequestError(f"/gate/metrics/{position}", f"{problem}; choose from: {', '.join(usable)}")
    for name in gate.floor_percent:
        if name not in gate.metrics:
            raise BadRequestError(f"/gate/floor_percent/{name}", f"{name!r} is not among the gate's metrics")


def _check_budgets(request: RunRequest, arms: list[ArmSpec], workload: CompiledWorkload) -> None:
    needed_tokens = largest_sequence_tokens(workload)
    for position, arm in enumerate(arms):
        asked_tokens = arm.engine.kv_pool_tokens
        if asked_tokens is not None and asked_tokens < needed_tokens:
            own = "kv_pool_tokens" in request.arms[position].engine
            pointer = f"/arms/{position}/engine/kv_pool_tokens" if own else "/engine/kv_pool_tokens"
            raise BudgetTooSmallError(pointer, asked_tokens, needed_tokens)
