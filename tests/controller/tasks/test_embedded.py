"""Background work inside the process: done by itself, one that fails keeps nothing else from its turn."""

import time

import pytest
from sqlalchemy import select

from contract.states import RunState
from controller.db.models import PeriodicMarkRow, RunRow
from controller.tasks.catalogue import FINISH_RUN, SUMMARISE_ATTEMPT
from controller.tasks.context import TaskContext
from controller.tasks.embedded import EmbeddedTasks
from tests.fakes.farm import Farm
from tests.fakes.session import Lab

DEADLINE_S = 30.0


@pytest.fixture
def tasks(farm: Farm) -> EmbeddedTasks:
    return EmbeddedTasks(TaskContext(farm.context.sessions, farm.context.settings))


def _swept(farm: Farm) -> bool:
    with farm.context.view() as work:
        return "sweep" in work.session.scalars(select(PeriodicMarkRow.name)).all()


def test_the_periodic_tasks_are_done_at_once_and_end_with_the_process(
    farm: Farm, tasks: EmbeddedTasks
) -> None:
    tasks.start()
    deadline = time.monotonic() + DEADLINE_S
    while not _swept(farm):
        assert time.monotonic() < deadline, "nothing was swept"
        time.sleep(0.02)
    tasks.stop(DEADLINE_S)
    assert not tasks.is_alive


@pytest.mark.anyio
async def test_a_task_that_fails_is_no_error_of_who_sent_it(farm: Farm, tasks: EmbeddedTasks) -> None:
    lab = await Lab.of(farm)
    run = await lab.submit()
    await lab.carry_out(await lab.claim())
    tasks.send_task(SUMMARISE_ATTEMPT, ["att_of_nobody"])
    tasks.send_task(FINISH_RUN, [run.run_id])
    with farm.context.view() as work:
        assert work.session.get_one(RunRow, run.run_id).state is RunState.COMPLETED
