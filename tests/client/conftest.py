"""A fake controller on a real port, and the command line called in this process."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from client.api import DynofarmClient
from client.cli import app
from contract.rest import RunRequest, WorkloadRequest
from rest.transport import Caller
from rest.tries import Patience
from tests.fakes.rest_controller import MODEL, TOKEN, RestController
from tests.fakes.scripted_run import Script, ScriptedRun


@dataclass(frozen=True)
class Outcome:
    """What a command left."""

    exit_code: int
    stdout: str
    stderr: str


Cli = Callable[..., Outcome]
AddRun = Callable[..., ScriptedRun]


@pytest.fixture
def controller() -> Iterator[RestController]:
    served = RestController()
    with served.served():
        yield served


@pytest.fixture
def client(controller: RestController) -> Iterator[DynofarmClient]:
    with DynofarmClient(controller.url, SecretStr(TOKEN), Caller(Patience(give_up_after_s=5.0))) as made:
        yield made


@pytest.fixture
def cli(controller: RestController, tmp_path: Path) -> Cli:
    """`cli("runs", "--json")` with the fake controller's address and token in the environment."""

    def call(*arguments: str, **environment: str) -> Outcome:
        env = {
            "DYNOFARM_CONTROLLER": controller.url,
            "DYNOFARM_TOKEN": TOKEN,
            "DYNOFARM_HOME": str(tmp_path / "home"),
            "DYNOFARM_POLL_S": "0.01",
            "COLUMNS": "200",
            **environment,
        }
        result = CliRunner().invoke(app, list(arguments), env=env)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return Outcome(result.exit_code, result.stdout, result.stderr)

    return call


@pytest.fixture
def add_run(controller: RestController) -> AddRun:
    """A run that the controller has; its script as keyword arguments."""

    def add(model: str = MODEL, **script: object) -> ScriptedRun:
        controller.script = Script(**script)
        return controller.add_run(request_for(model))

    return add


def request_for(model: str = MODEL) -> RunRequest:
    """shared-prefix in its smallest form, six pairs."""
    workload = WorkloadRequest(name="shared-prefix", params={"agents": 2, "prefix_tokens": 16})
    return RunRequest(workload=workload, model=model, repetitions=6)
