"""`dynofarm workloads`: what can be named in a run, and a check of a workload file without any server."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from client.assignments import assignments
from client.errors import UsageError
from client.options import ControllerOptions
from client.output import Output
from client.render_lists import graphs_view, workload_view, workloads_table
from client.run_request import read_text
from contract.problems import FieldProblem
from contract.states import GateExit
from workloads import Source, WorkloadError, compile_source


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadsOptions(ControllerOptions):
    """A file to check; without one the workloads are listed."""

    check: Annotated[
        Path | None,
        typer.Option("--check", metavar="FILE", help="Compile a workload file here and print its graph."),
    ] = None
    params: Annotated[
        list[str],
        typer.Option("--param", "-p", metavar="NAME=VALUE", help="With --check: a parameter; repeatable."),
    ] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadOptions(ControllerOptions):
    """Which workload."""

    name: Annotated[str, typer.Argument(metavar="WORKLOAD", help="Name of the workload.")]


def workloads(options: WorkloadsOptions, output: Output) -> int:
    """List the workloads of the farm, or check a file of your own."""
    if options.check is not None:
        return _check(options.check, assignments(options.params, "--param"), output)
    return list_workloads(options, output)


def list_workloads(options: ControllerOptions, output: Output) -> int:
    """List the workloads that a run can name."""
    with options.client() as client:
        found = client.workloads().workloads
    output.result(found, workloads_table(found))
    return GateExit.PASS


def show(options: WorkloadOptions, output: Output) -> int:
    """Show a workload and its parameters."""
    with options.client() as client:
        found = {workload.name: workload for workload in client.workloads().workloads}
    if options.name not in found:
        raise UsageError(
            "workload-not-found",
            f"no workload is named {options.name!r}",
            f"there are {', '.join(sorted(found))}",
        )
    output.result(found[options.name], workload_view(found[options.name]))
    return GateExit.PASS


def _check(path: Path, params: dict[str, Any], output: Output) -> int:
    source = Source(str(path), read_text(path, "--check"))
    try:
        graphs = compile_source(source, params)
    except WorkloadError as error:
        wrong = (FieldProblem(pointer=error.field, detail=error.problem),)
        raise UsageError(
            "bad-workload", str(error), "workloads/README.md explains every key", wrong
        ) from error
    output.result(graphs, graphs_view(graphs))
    return GateExit.PASS
