"""Periodic work guards itself: any number of schedulers is as good as one."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from controller.db.periodic import take_period
from controller.db.session import unit_of_work
from controller.tasks.context import TaskContext
from controller.tasks.upkeep import sweep_if_due
from tests.fakes.farm import Farm

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
