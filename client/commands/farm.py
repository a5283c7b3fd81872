"""`dynofarm up` and `dynofarm agent`: a farm on this machine, or this machine for a farm elsewhere."""

import dataclasses
import os
from typing import Annotated, Final

import typer
from rich.text import Text

from client.api import DynofarmClient
from client.errors import ClientError, UsageError
from client.farm_home import FarmHome
from client.local_farm import FarmCommand, LocalFarm, own_environment, stopped_by_sigterm
from client.options import ControllerOptions, HomeOptions
from client.output import Output
from client.settings import read_settings
from contract.administration import EnrollmentTokenRequest
from contract.model import ContractModel
from contract.states import GateExit
from rest.tries import Patience

_ENROLLMENT_VARIABLE: Final = "DYNOFARM_ENROLLMENT_TOKEN"
_ENROLLMENT_VALID_S: Final = 600.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions(HomeOptions):
    """Where it listens."""

    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8000
    with_agent: Annotated[
        bool, typer.Option("--agent/--no-agent", help="Whether this machine is a device of the farm.")
    ] = True


class FarmStarted(ContractModel):
    """What `dynofarm up --json` writes once the farm is ready."""

    url: str
    home: str
    admin_token_file: str
    dashboard_url: str
    log_file: str
    """What controller and agent say, a line for each request; every start appends to it."""


def up(options: UpOptions, output: Output) -> int:
    """Run a farm on this machine until Ctrl-C. Controller, dashboard and one device agent."""
    home = options.farm_home()
    arguments = ["--host", options.host, "--port", str(options.port)]
    if not options.with_agent:
        arguments.append("--no-agent")
    command = FarmCommand(read_settings().embedded_command, home, tuple(arguments))
    with stopped_by_sigterm(), LocalFarm(command) as farm:
        started = _started(farm.wait_until_ready(), home)
        output.result(started, farm_view(started))
        try:
            return GateExit.PASS if farm.wait() == 0 else GateExit.INFRASTRUCTURE
        except KeyboardInterrupt:
            output.say("stopping the farm")
            farm.stop()
            return GateExit.PASS


def agent(options: ControllerOptions, output: Output) -> int:
    """Make this machine a device of a farm, until Ctrl-C. It enrols itself once, with the token of
    DYNOFARM_ENROLLMENT_TOKEN or with one that your own token may ask for."""
    settings = read_settings()
    home = options.farm_home()
    with options.client(Patience(give_up_after_s=3.0)) as client:
        url = client.url
        token = os.environ.get(_ENROLLMENT_VARIABLE, "") or _enrollment_token(client, output)
    environment = {**own_environment(), **({_ENROLLMENT_VARIABLE: token} if token else {})}
    program = settings.agent_command
    output.say(f"agent of {url}, files in {home.path / 'agent'}")
    try:
        # The agent takes this process's place: signals and exit code are its own.
        os.execve(program[0], [*program, "--home", str(home.path), "--controller", url], environment)
    except OSError as error:
        raise UsageError("agent-not-started", f"{program[0]} cannot be started: {error.strerror}") from error


def farm_view(started: FarmStarted) -> Text:
    """Where the farm is and how to get in; the token itself is never shown."""
    return Text(
        f"farm ready at {started.url}\n"
        f"dashboard    {started.dashboard_url}\n"
        f"sign in with the token in {started.admin_token_file}\n"
        f"its log is   {started.log_file}\n"
        "Ctrl-C stops it",
        overflow="fold",
    )


def _started(url: str, home: FarmHome) -> FarmStarted:
    return FarmStarted(
        url=url,
        home=str(home.path),
        admin_token_file=str(home.admin_token_file),
        dashboard_url=f"{url}/dashboard/",
        log_file=str(home.log_file),
    )


def _enrollment_token(client: DynofarmClient, output: Output) -> str:
    """A fresh one-time token; "" when we may not have one, which an agent that is enrolled does not need."""
    try:
        return client.enrollment_token(EnrollmentTokenRequest(valid_s=_ENROLLMENT_VALID_S)).token
    except ClientError as error:
        output.say(f"no enrolment token: {error.detail}")
        output.say(f"an agent that is not enrolled yet needs one in {_ENROLLMENT_VARIABLE}")
        return ""
