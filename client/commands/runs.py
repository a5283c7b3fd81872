"""`dynofarm runs`, `submit`, `watch`, `report`, `compare`, `cancel`: a run from start to results."""

import dataclasses
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from client.api import DynofarmClient
from client.follow import RunFollower, WaitNotice
from client.options import INTERRUPTED_EXIT, ControllerOptions, RunOptions, check_run_id
from client.output import Output
from client.progress import progress_view
from client.refusals import built
from client.render import report_view
from client.render_lists import comparison_view, run_view, runs_table
from client.run_request import SubmitOptions, cautions, only_again, run_request
from client.settings import read_settings
from contract.queries import ComparisonQuery
from contract.rest import RunView
from contract.states import GateExit, RunState
from rest.tries import Patience

WATCH_PATIENCE = Patience(give_up_after_s=60.0)
"""For the first answer; once there was one, a controller that is away is waited for (client/follow.py)."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunsOptions(ControllerOptions):
    """How many."""

    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most this many, newest first.")] = 20


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions(RunOptions):
    """How long."""

    timeout_s: Annotated[
        float | None, typer.Option("--timeout-s", help="Stop watching after this long; exit code 4.")
    ] = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions(ControllerOptions):
    """Which two runs, and which of their results."""

    baseline_run_id: Annotated[str, typer.Argument(metavar="BASELINE_RUN", help="Run to compare with.")]
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="Run that is judged.")]
    arm: Annotated[str, typer.Option(help="The arm that is compared.")] = "paged"
    device_model: Annotated[str | None, typer.Option(help="Where the runs have several device models.")] = (
        None
    )
    variant: Annotated[str | None, typer.Option(help="Where the runs have several variants.")] = None
    force: Annotated[
        bool, typer.Option("--force", help="Show the figures although the runs did not measure the same.")
    ] = False

    def __post_init__(self) -> None:
        """UsageError for what cannot be a run."""
        check_run_id(self.baseline_run_id)
        check_run_id(self.run_id)


def runs(options: RunsOptions, output: Output) -> int:
    """List runs, newest first."""
    found: list[RunView] = []
    page_token: str | None = ""
    with options.client() as client:
        while page_token is not None and len(found) < options.limit:
            page = client.runs(page_token, min(200, options.limit - len(found)))
            found += page.runs
            page_token = page.next_page_token
    output.result(found, runs_table(found))
    return GateExit.PASS


def submit(options: SubmitOptions, output: Output) -> int:
    """Submit a run. A workload, a model, two arms, pairs of trials, on one or more devices."""
    again = only_again(options)
    made = None if again else run_request(options)
    with options.client(WATCH_PATIENCE if options.watch else None, WaitNotice(output)) as client:
        request = made or client.request_of(options.again)
        for caution in cautions(request):
            output.say(caution)
        run = client.submit(request, options.idempotency_key)
        if options.watch:
            output.say(f"submitted {run.run_id}")
            return _watched(client, run.run_id, options, output)
    hint = Text(f"dynofarm watch {run.run_id}{options.same_farm}   follows it", overflow="fold")
    output.result(run, Group(run_view(run), hint))
    return GateExit.PASS


def watch(options: WatchOptions, output: Output) -> int:
    """Follow a run to its end; the exit code is the gate's."""
    with options.client(WATCH_PATIENCE, WaitNotice(output)) as client:
        return _watched(client, options.run_id, options, output, options.timeout_s)


def report(options: RunOptions, output: Output) -> int:
    """Show a run's results; while it goes on, those that there are."""
    with options.client() as client:
        found = client.report(options.run_id)
    output.result(found, report_view(found))
    return GateExit.PASS


def compare(options: CompareOptions, output: Output) -> int:
    """Show two runs side by side; for a verdict, put both into one run as two arms."""
    choice = built(
        ComparisonQuery,
        baseline=options.baseline_run_id,
        arm=options.arm,
        force=options.force,
        device_model=options.device_model,
        variant=options.variant,
    )
    with options.client() as client:
        comparison = client.comparison(options.run_id, choice)
    output.result(comparison, comparison_view(comparison))
    return GateExit.PASS


def cancel(options: RunOptions, output: Output) -> int:
    """Cancel what is not done of a run; what is measured already stays."""
    with options.client() as client:
        run = client.cancel(options.run_id)
    output.result(run, run_view(run))
    if run.state is not RunState.COMPLETED:
        output.say("its devices stop at their next sign of life")
    return GateExit.PASS


def _watched(
    client: DynofarmClient,
    run_id: str,
    options: ControllerOptions,
    output: Output,
    timeout_s: float | None = None,
) -> int:
    """Follow with progress, then the report. Ctrl-C ends the watching and not the run."""
    try:
        with progress_view(output) as view:
            for progress in RunFollower(client, run_id, read_settings().poll_s).updates(timeout_s):
                view.update(progress)
        found = client.report(run_id)
    except KeyboardInterrupt:
        output.say(f"stopped watching; run {run_id} goes on")
        output.say(f"  dynofarm watch {run_id}{options.same_farm}   looks again")
        output.say(f"  dynofarm cancel {run_id}{options.same_farm}   ends it")
        return INTERRUPTED_EXIT
    output.result(found, report_view(found))
    return found.gate.exit_code
