"""The options of `dynofarm submit` and the run request that they make."""

import dataclasses
import math
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from client.assignments import arm_requests, assignments, text_assignments
from client.errors import UsageError
from client.options import ControllerOptions, check_run_id
from contract.jobs import EngineOptions
from contract.problems import FieldProblem
from contract.rest import RunRequest
from contract.states import TargetKind

MAX_WORKLOAD_FILE_BYTES: Final = 1_000_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SubmitOptions(ControllerOptions):
    """What may be said of a run on the command line; --request takes the whole of it from a file."""

    workload: Annotated[str, typer.Argument(help="Name of a workload of the farm.")] = ""
    workload_file: Annotated[
        Path | None, typer.Option("--workload-file", help="A workload file of your own.")
    ] = None
    request: Annotated[
        Path | None,
        typer.Option("--request", help="A JSON file with the whole request, as POST /v1/runs takes it."),
    ] = None
    again: Annotated[
        str, typer.Option("--again", metavar="RUN", help="Submit what that run was, on today's farm.")
    ] = ""
    params: Annotated[
        list[str],
        typer.Option("--param", "-p", metavar="NAME=VALUE", help="A parameter of the workload; repeatable."),
    ] = dataclasses.field(default_factory=list)
    model: Annotated[str, typer.Option("--model", "-m", help="Name of a model that the devices have.")] = ""
    arms: Annotated[
        list[str],
        typer.Option(
            "--arm",
            metavar="ARM[=MODE][,NAME=VALUE...]",
            help="One side of the comparison, with engine options of its own; repeatable.",
        ),
    ] = dataclasses.field(default_factory=list)
    baseline: Annotated[str, typer.Option(help="Arm that the other is compared with [first arm].")] = ""
    candidate: Annotated[str, typer.Option(help="Arm that is judged [last arm].")] = ""
    pairs: Annotated[int | None, typer.Option("--pairs", help="Pairs of trials on each device [5].")] = None
    warmups: Annotated[int | None, typer.Option(help="Trials of each arm that are not counted [1].")] = None
    design: Annotated[str, typer.Option(help="Order inside the pairs: abba or random [abba].")] = ""
    seed: Annotated[int | None, typer.Option(help="Seed of the order and of the statistics [0].")] = None
    engine: Annotated[
        list[str],
        typer.Option("--engine", metavar="NAME=VALUE", help="Engine option of all arms; repeatable."),
    ] = dataclasses.field(default_factory=list)
    kind: Annotated[TargetKind, typer.Option(help="Kind of target.")] = TargetKind.HOST
    devices: Annotated[
        list[str], typer.Option("--device", help="Id of a device; repeatable, one job for each.")
    ] = dataclasses.field(default_factory=list)
    device_model: Annotated[str, typer.Option(help="Only devices of this model.")] = ""
    os_version: Annotated[str, typer.Option(help="Only devices with this version of the OS.")] = ""
    device_labels: Annotated[
        list[str], typer.Option("--device-label", metavar="NAME=VALUE", help="Only devices with this label.")
    ] = dataclasses.field(default_factory=list)
    metrics: Annotated[
        list[str], typer.Option("--metric", help="Metric that the gate judges; repeatable [wall_s].")
    ] = dataclasses.field(default_factory=list)
    floors: Annotated[
        list[str],
        typer.Option("--floor", metavar="METRIC=PERCENT", help="A smaller change is not a regression."),
    ] = dataclasses.field(default_factory=list)
    alpha: Annotated[float | None, typer.Option(help="Level of the gate's test [0.05].")] = None
    inconclusive: Annotated[str, typer.Option(help="What no clear answer counts as: pass or fail.")] = ""
    commit: Annotated[str, typer.Option(help="Commit of what is measured.")] = ""
    labels: Annotated[
        list[str], typer.Option("--label", metavar="NAME=VALUE", help="Label of the run; repeatable.")
    ] = dataclasses.field(default_factory=list)
    priority: Annotated[int | None, typer.Option(help="0 to 9, higher goes first [5].")] = None
    queue_deadline_s: Annotated[
        float | None, typer.Option("--queue-deadline-s", help="Give up when no device took it by then.")
    ] = None
    max_attempts: Annotated[int | None, typer.Option(help="Tries of each job [3].")] = None
    wait_for_capacity: Annotated[
        bool, typer.Option("--wait-for-capacity", help="Accept the run although no device fits now.")
    ] = False
    idempotency_key: Annotated[
        str, typer.Option("--idempotency-key", help="The same key never makes a second run.")
    ] = ""
    watch: Annotated[
        bool, typer.Option("--watch", help="Follow the run to its end; exit with the gate's code.")
    ] = False


def run_request(options: SubmitOptions) -> RunRequest:
    """The request that the options or their file make; UsageError that names each wrong field."""
    if options.request is not None:
        return _from_file(options.request)
    try:
        return RunRequest.model_validate(_body(options))
    except ValidationError as error:
        raise _usage_error(error, "the request") from error


def cautions(request: RunRequest) -> list[str]:
    """What is known before anything is measured: that no verdict can come of it, whatever it finds."""
    smallest_p = 2.0**-request.repetitions
    if request.baseline == request.candidate or smallest_p <= request.gate.alpha:
        return []
    needed = math.ceil(-math.log2(request.gate.alpha))
    return [
        f"{request.repetitions} pairs cannot reach level {request.gate.alpha:g}, their smallest p is "
        f"{smallest_p:.4g}: the verdict will be inconclusive; it takes --pairs {needed}"
    ]


def only_again(options: SubmitOptions) -> bool:
    """Whether an earlier run is submitted as it was; UsageError when something about it is to differ."""
    if not options.again:
        return False
    check_run_id(options.again)
    kept = {
        "again",
        "idempotency_key",
        "watch",
        *(field.name for field in dataclasses.fields(ControllerOptions)),
    }
    changed = [
        field.name
        for field in dataclasses.fields(options)
        if field.name not in kept and getattr(options, field.name) != getattr(SubmitOptions(), field.name)
    ]
    if changed:
        raise UsageError(
            "bad-option",
            f"--again takes the run as it was, so {', '.join(changed)} cannot be given with it",
            "leave it out, or say the whole run without --again",
        )
    return True


def _from_file(path: Path) -> RunRequest:
    try:
        return RunRequest.model_validate_json(read_text(path, "--request"))
    except ValidationError as error:
        raise _usage_error(error, str(path)) from error


def _usage_error(error: ValidationError, what: str) -> UsageError:
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    fields = [
        FieldProblem(pointer="".join(f"/{part}" for part in problem["loc"]), detail=_detail(problem))
        for problem in problems
    ]
    return UsageError("bad-request", f"{what} cannot be submitted", "correct these fields", tuple(fields))


def _detail(problem: ErrorDetails) -> str:
    """pydantic's words, but for an engine option that does not exist the names of those that do."""
    if problem["type"] == "extra_forbidden" and problem["loc"][0] == "engine":
        return f"no such option; there are {', '.join(EngineOptions.model_fields)}"
    return problem["msg"]


def _body(options: SubmitOptions) -> dict[str, Any]:
    """The body as JSON would have it; what was not said is left to the contract's defaults."""
    if not options.model:
        raise UsageError(
            "bad-option", "--model is missing", "`dynofarm devices show DEVICE` lists a device's models"
        )
    arms = arm_requests(options.arms, "--arm")
    optional: dict[str, Any] = {
        "arms": arms,
        "baseline": options.baseline or (arms[0].arm if arms else ""),
        "candidate": options.candidate or (arms[-1].arm if arms else ""),
        "repetitions": options.pairs,
        "warmups": options.warmups,
        "design": options.design,
        "seed": options.seed,
        "engine": assignments(options.engine, "--engine"),
        "build": {"commit": options.commit} if options.commit else None,
        "gate": _gate(options),
        "priority": options.priority,
        "queue_deadline_s": options.queue_deadline_s,
        "max_attempts": options.max_attempts,
        "labels": text_assignments(options.labels, "--label"),
    }
    return {
        "workload": _workload(options),
        "model": options.model,
        "selectors": _selectors(options),
        "wait_for_capacity": options.wait_for_capacity,
        **_said(optional),
    }


def _said(values: dict[str, Any]) -> dict[str, Any]:
    """Without what was not said: None, "", and empty collections, but with 0."""
    return {name: value for name, value in values.items() if value is not None and value not in ("", [], {})}


def _gate(options: SubmitOptions) -> dict[str, Any]:
    return _said(
        {
            "metrics": options.metrics,
            "alpha": options.alpha,
            "floor_percent": assignments(options.floors, "--floor"),
            "inconclusive": options.inconclusive,
        }
    )


def _workload(options: SubmitOptions) -> dict[str, Any]:
    params = assignments(options.params, "--param")
    if bool(options.workload) == (options.workload_file is not None):
        raise UsageError(
            "bad-option",
            "give either the name of a workload or --workload-file",
            "`dynofarm workloads list` lists the names",
        )
    if options.workload_file is None:
        return {"name": options.workload, "params": params}
    source = read_text(options.workload_file, "--workload-file")
    return {"source": source, "source_name": options.workload_file.name, "params": params}


def _selectors(options: SubmitOptions) -> list[dict[str, Any]]:
    shared = _said(
        {
            "kind": options.kind,
            "device_model": options.device_model,
            "os_version": options.os_version,
            "labels": text_assignments(options.device_labels, "--device-label"),
        }
    )
    return [{**shared, "device_id": device} for device in options.devices] or [shared]


def read_text(path: Path, option: str) -> str:
    """A small UTF-8 file that a person named; UsageError that names it."""
    try:
        size_bytes = path.stat().st_size
        if size_bytes > MAX_WORKLOAD_FILE_BYTES:
            raise UsageError(
                "bad-file",
                f"{option} {path} has {size_bytes} bytes, at most {MAX_WORKLOAD_FILE_BYTES} are allowed",
            )
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError("bad-file", f"{option} {path} cannot be read: {why}") from error
