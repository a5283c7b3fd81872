"""A run is followed over an outage of its controller, until the follower's own deadline."""

import pytest
from pydantic import SecretStr

from client.api import DynofarmClient
from client.errors import InfrastructureError
from client.follow import RunFollower, WaitNotice
from client.output import Output
from rest.transport import Caller
from rest.tries import Patience
from tests.client.conftest import AddRun
from tests.fakes.rest_controller import TOKEN, RestController

IMPATIENT = Patience(give_up_after_s=0.0, first_wait_s=0.001, longest_wait_s=0.002)


def test_a_controller_that_is_away_is_waited_for_and_said_to_be(
    controller: RestController, add_run: AddRun, capsys: pytest.CaptureFixture[str]
) -> None:
    run = add_run(polls=3)
    caller = Caller(IMPATIENT, on_wait=WaitNotice(Output(as_json=False)))
    with DynofarmClient(controller.url, SecretStr(TOKEN), caller) as client:
        updates = RunFollower(client, run.run_id, poll_s=0.01).updates()
        next(updates)
        controller.refusals = [503] * 6
        last = [*updates][-1]
    assert last.is_complete
    assert capsys.readouterr().err.count("waiting for the controller: ") == 1


def test_nobody_is_waited_for_who_never_answered(controller: RestController, add_run: AddRun) -> None:
    run = add_run(polls=3)
    controller.refusals = [503] * 6
    with (
        DynofarmClient(controller.url, SecretStr(TOKEN), Caller(IMPATIENT)) as client,
        pytest.raises(InfrastructureError),
    ):
        next(RunFollower(client, run.run_id, poll_s=0.01).updates())


def test_waiting_ends_at_the_follower_s_deadline(controller: RestController, add_run: AddRun) -> None:
    run = add_run(polls=3)
    with DynofarmClient(controller.url, SecretStr(TOKEN), Caller(IMPATIENT)) as client:
        updates = RunFollower(client, run.run_id, poll_s=0.01).updates(timeout_s=0.2)
        next(updates)
        controller.refusals = [503] * 100_000
        with pytest.raises(InfrastructureError, match="the store is busy"):
            list(updates)
