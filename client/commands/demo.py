"""`dynofarm demo`: a whole farm on this machine, one run of five agents, its report, and an audit."""

import dataclasses
import shlex
import time
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.text import Text

from client import demo_sizes
from client.api import DynofarmClient
from client.demo_result import DemoResult, demo_result
from client.demo_sizes import DemoSizes, demo_request
from client.demo_target import DemoDevices, DemoTargetKind, demo_devices, threads_of_each
from client.errors import ClientError, InfrastructureError, NoCapacityError, RunCancelledError, UsageError
from client.event_audit import EventAudit, audit_run
from client.farm_home import FarmHome
from client.follow import RunFollower
from client.local_farm import (
    FarmCommand,
    LocalFarm,
    own_environment,
    refuse_second_farm,
    stopped_by_sigterm,
)
from client.options import JsonOption
from client.output import Output
from client.progress import progress_view
from client.render import HEADLINE_METRICS, report_view
from client.settings import read_settings
from contract.rest import DeviceView, RunReport, RunView
from contract.states import DeviceState, GateExit, RunOutcome
from measures.wording import less_time
from rest.transport import Caller
from rest.tries import Patience

DEVICE_TIMEOUT_S: Final = 90.0
_POLL_S: Final = 0.5
_LEFTOVERS: Final = 50
_MEASURED: Final = frozenset({RunOutcome.PASSED, RunOutcome.INCONCLUSIVE, RunOutcome.REGRESSED})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions(JsonOption):
    """Sizes of the demo; each also as an environment variable."""

    home: Annotated[Path, typer.Option("--home", help="Folder of the demo's farm.")] = Path(".dynofarm")
    target: Annotated[
        DemoTargetKind, typer.Option("--target", help="On this machine, or on two emulated iPhones.")
    ] = DemoTargetKind.HOST
    leave: Annotated[bool, typer.Option("--exit", help="Stop the farm after the report and leave.")] = False
    full: Annotated[
        bool, typer.Option("--full", help="2,000 shared tokens as in the articles; takes much longer.")
    ] = False
    agents: Annotated[
        int, typer.Option(min=1, max=64, envvar="DYNOFARM_DEMO_AGENTS", help="Agents at the same time.")
    ] = demo_sizes.AGENTS
    prefix_tokens: Annotated[
        int,
        typer.Option(min=16, envvar="DYNOFARM_DEMO_PREFIX_TOKENS", help="Tokens that all agents share."),
    ] = demo_sizes.PREFIX_TOKENS
    calls: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=64,
            envvar="DYNOFARM_DEMO_CALLS",
            help=f"Calls of each agent, {demo_sizes.CALLS}; emulated: {demo_sizes.VIRTUAL_CALLS}.",
        ),
    ] = None
    generated_tokens: Annotated[
        int | None,
        typer.Option(
            min=2,
            envvar="DYNOFARM_DEMO_GENERATED_TOKENS",
            help=f"Tokens that each call writes, {demo_sizes.GENERATED_TOKENS}; emulated: "
            f"{demo_sizes.VIRTUAL_GENERATED_TOKENS}.",
        ),
    ] = None
    pairs: Annotated[
        int, typer.Option(min=1, max=200, envvar="DYNOFARM_DEMO_PAIRS", help="Pairs of trials.")
    ] = demo_sizes.PAIRS

    @property
    def sizes(self) -> DemoSizes:
        """The sizes that were chosen."""
        emulated = self.target is DemoTargetKind.VIRTUAL
        calls = demo_sizes.VIRTUAL_CALLS if emulated else demo_sizes.CALLS
        tokens = demo_sizes.VIRTUAL_GENERATED_TOKENS if emulated else demo_sizes.GENERATED_TOKENS
        return DemoSizes(
            agents=self.agents,
            prefix_tokens=demo_sizes.FULL_PREFIX_TOKENS if self.full else self.prefix_tokens,
            calls=self.calls or calls,
            generated_tokens=self.generated_tokens or tokens,
            pairs=self.pairs,
            threads=threads_of_each() if emulated else None,
        )


def demo(options: DemoOptions, output: Output) -> int:
    """Show the whole thing on this machine. Start a farm, let five agents run on a real model one after
    the other and then together, and tell what was gained."""
    home = FarmHome(options.home.expanduser().absolute())
    # Before anything is emulated for it.
    refuse_second_farm(home)
    with stopped_by_sigterm(), demo_devices(options.target, home, output) as devices:
        return _demo_on(devices, home, options, output)


def _demo_on(devices: DemoDevices, home: FarmHome, options: DemoOptions, output: Output) -> int:
    environment = {**own_environment(), **devices.environment}
    program = read_settings().embedded_command
    command = FarmCommand(program, home, ("--port", "0"), environment)
    with LocalFarm(command) as farm:
        output.say(f"starting a farm in {home.path}, its log is {home.log_file}")
        url = farm.wait_until_ready()
        output.say(f"farm ready at {url}; sign in with the token in {home.admin_token_file}")
        # Long enough for a busy machine: the controller shares its cores with what is measured.
        caller = Caller(Patience(call_s=60.0, give_up_after_s=60.0), must_prove_token=True)
        with DynofarmClient(url, home.admin_token(), caller) as client:
            result = _measure(client, devices, home, options.sizes, output)
        try:
            output.result(result, demo_view(result))
            if not options.leave:
                output.say(
                    f"the farm stays up until Ctrl-C; sign in with the token in {home.admin_token_file}; "
                    f"other commands find it with DYNOFARM_HOME={home.path}"
                )
                farm.wait()
        except KeyboardInterrupt:
            # The end that was announced.
            farm.stop()
    output.say(_reopened(home))
    return exit_code_of(result)


def _reopened(home: FarmHome) -> str:
    return f"the farm is stopped; what it measured stays: dynofarm up --home {shlex.quote(str(home.path))}"


def _measure(
    client: DynofarmClient, devices: DemoDevices, home: FarmHome, sizes: DemoSizes, output: Output
) -> DemoResult:
    """One run from submission to result; a ClientError when there is none."""
    cancel_leftovers(client, output)
    device_ids = wait_for_devices(client, devices, output)
    run = client.submit(demo_request(sizes, *device_ids, kind=devices.kind))
    try:
        output.say(f"submitted {run.run_id}, live at {run.report_url}")
        run = _followed(client, run, sizes, output)
    except (KeyboardInterrupt, SystemExit):
        # A farm forgets nothing: the next one in this home would take the run up again.
        is_cancelled = _cancel_quickly(client.url, home, run.run_id)
        output.say(f"run {run.run_id} {'' if is_cancelled else 'could not be '}cancelled; stopping the farm")
        raise
    report = client.report(run.run_id)
    output.show(report_view(report, HEADLINE_METRICS))
    if run.outcome not in _MEASURED:
        raise _unmeasured(report, run, home)
    audit = audit_run(client, home, run)
    output.say(audit_line(audit))
    return demo_result(report, audit)


def _followed(client: DynofarmClient, run: RunView, sizes: DemoSizes, output: Output) -> RunView:
    with progress_view(output, sizes.calls_of_a_trial) as view:
        for progress in RunFollower(client, run.run_id, read_settings().poll_s).updates():
            view.update(progress)
            run = progress.run
    return run


def cancel_leftovers(client: DynofarmClient, output: Output) -> None:
    """Runs of demos that were killed would have the device first."""
    for run in client.runs(limit=_LEFTOVERS).runs:
        if run.outcome is None and run.labels.get(demo_sizes.LABEL) == demo_sizes.LABEL_VALUE:
            output.say(f"cancelling {run.run_id}, which an earlier demo left unfinished")
            client.cancel(run.run_id)


def _cancel_quickly(url: str, home: FarmHome, run_id: str) -> bool:
    """Whether it is done: a person who pressed Ctrl-C does not wait for a controller that is gone."""
    caller = Caller(Patience(call_s=3.0, give_up_after_s=0.0), must_prove_token=True)
    try:
        with DynofarmClient(url, home.admin_token(), caller) as client:
            client.cancel(run_id)
    except ClientError:
        return False
    return True


def wait_for_devices(
    client: DynofarmClient, wanted: DemoDevices, output: Output, timeout_s: float = DEVICE_TIMEOUT_S
) -> list[str]:
    """Ids of the wanted devices, ready and with the demo's model, or of the first of their kind;
    InfrastructureError that says what they lack."""
    output.say(f"waiting for a device with the model {demo_sizes.MODEL}")
    deadline = time.monotonic() + timeout_s
    while True:
        devices = [device for device in client.devices().devices if _is_wanted(device, wanted)]
        ready = [
            device.device_id
            for device in devices
            if device.state is DeviceState.READY and demo_sizes.MODEL in device.models
        ]
        if len(ready) >= max(1, len(wanted.device_ids)):
            return ready if wanted.device_ids else ready[:1]
        if time.monotonic() > deadline:
            break
        time.sleep(_POLL_S)
    seen = [
        f"{device.device_id} is {device.state} {'; '.join(device.reasons)}".strip()
        + ("" if demo_sizes.MODEL in device.models else " and lacks the model")
        for device in devices
    ]
    raise InfrastructureError(
        "no-device",
        f"no device with {demo_sizes.MODEL} was ready after {timeout_s:g} s: "
        + (", ".join(seen) or "there is none"),
        "`make setup` installs the model; the farm's log tells what the agent did",
    )


def _is_wanted(device: DeviceView, wanted: DemoDevices) -> bool:
    return device.kind is wanted.kind and (not wanted.device_ids or device.device_id in wanted.device_ids)


def demo_view(result: DemoResult) -> Text:
    """The last lines of the demo; the report stands above them, on standard error."""
    lines = [
        less_time(result.wall_reduction_percent, result.speedup),
        f"gate: {result.gate.verdict}, exit code {int(result.gate.exit_code)}",
        f"events lost {result.events_lost}, duplicated {result.events_duplicated}",
        f"dashboard: {result.report_url}",
    ]
    return Text("\n".join(lines), overflow="fold")


def audit_line(audit: EventAudit) -> str:
    """The audit in one line."""
    return (
        f"events: {audit.written} written by runtime and agent, {audit.stored} stored, "
        f"{audit.lost} lost, {audit.duplicated} duplicated"
    )


def exit_code_of(result: DemoResult) -> int:
    """Not the gate's: the demo shows that nothing is lost, so it fails when something was."""
    return GateExit.INFRASTRUCTURE if result.events_lost or result.events_duplicated else GateExit.PASS


def _unmeasured(report: RunReport, run: RunView, home: FarmHome) -> ClientError:
    failures = [failure for device in report.devices for failure in device.failures]
    why = "; ".join(failures) or report.gate.reason
    attempts = [attempt.attempt_id for job in run.jobs for attempt in job.attempts]
    logs = [home.log_file, *(home.runtime_log_file(attempt) for attempt in attempts)]
    next_step = "read " + " and ".join(str(log) for log in logs if log.exists())
    kinds = {
        GateExit.USAGE: UsageError,
        GateExit.CANCELLED: RunCancelledError,
        GateExit.NO_CAPACITY: NoCapacityError,
    }
    kind = kinds.get(report.gate.exit_code, InfrastructureError)
    return kind("run-not-measured", f"run {run.run_id} ended {run.outcome}: {why}", next_step)
