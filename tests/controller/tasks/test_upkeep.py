"""Periodic work guards itself: any number of schedulers is as good as one."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import delete, select, update

from contract.states import RunState
from controller.db.models import AttemptSummaryRow, JobRow, RunRow
from controller.db.periodic import take_period
from controller.db.session import unit_of_work
from controller.tasks.context import TaskContext
from controller.tasks.upkeep import sweep_if_due
from tests.fakes.farm import Farm
from tests.fakes.session import Lab

START = datetime(2026, 1, 1, tzinfo=UTC)
PERIOD = timedelta(seconds=5)


def _at(farm: Farm, offset_s: float) -> TaskContext:
    return TaskContext(
        farm.context.sessions, farm.context.settings, lambda: START + timedelta(seconds=offset_s)
    )


def test_of_two_sweeps_in_one_period_the_second_does_nothing(farm: Farm) -> None:
    assert [sweep_if_due(_at(farm, offset_s), 5.0) for offset_s in (0, 0, 1, 5, 6, 9.9)] == [
        *(True, False, False),
        *(True, False, True),
    ]


@pytest.mark.anyio
async def test_a_run_that_cannot_be_concluded_keeps_no_other_from_its_verdict(farm: Farm) -> None:
    lab = await Lab.of(farm)
    damaged, sound = await lab.submit(), await lab.submit()
    for _ in range(2):
        await lab.carry_out(await lab.claim())
    with farm.context.unit_of_work() as work:
        # As if the messages that conclude them had been lost, and a row damaged.
        work.session.execute(update(RunRow).values(state=RunState.FINISHING, gate=None))
        work.session.execute(update(JobRow).where(JobRow.run_id == damaged.run_id).values(spec={}))
        work.session.execute(delete(AttemptSummaryRow))
    with pytest.raises(ExceptionGroup, match="could not be concluded") as raised:
        sweep_if_due(_at(farm, 0), 5.0)
    assert raised.value.exceptions[0].__notes__ == [f"run {damaged.run_id}"]
    with farm.context.view() as work:
        states = {run.run_id: run.state for run in work.session.scalars(select(RunRow))}
    assert states == {damaged.run_id: RunState.FINISHING, sound.run_id: RunState.COMPLETED}


def test_different_work_has_periods_of_its_own(farm: Farm) -> None:
    with unit_of_work(farm.context.sessions) as session:
        assert take_period(session, "a", PERIOD, START)
        assert take_period(session, "b", PERIOD, START)
        assert not take_period(session, "a", PERIOD, START)


def test_of_many_schedulers_at_once_one_gets_each_period(farm: Farm) -> None:
    def ask(period: int) -> bool:
        with unit_of_work(farm.context.sessions) as session:
            return take_period(session, "work", PERIOD, START + period * PERIOD)

    with ThreadPoolExecutor(8) as threads:
        for period in range(4):
            assert sum(threads.map(ask, [period] * 8)) == 1
