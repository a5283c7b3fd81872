"""Celery's settings, each against a trap that was measured, and tasks that may run twice."""

from datetime import timedelta

import pytest
from celery import Celery
from kombu.exceptions import OperationalError
from sqlalchemy import func, select

from contract.states import RunState
from controller.db.models import IdempotencyKeyRow, OutboxRow, RunRow, SampleRow, TokenKind, TokenRow
from controller.db.tokens import TokenGrant
from controller.tasks.application import TASK_LIMIT_S, build_celery
from controller.tasks.catalogue import FINISH_RUN, SCHEDULE, SUMMARISE_ATTEMPT, SWEEP, TASKS
from controller.tasks.context import TaskContext
from controller.tasks.upkeep import forget_expired, sweep_if_due
from tests.fakes.farm import Farm
from tests.fakes.session import Lab, run_request

pytestmark = pytest.mark.anyio


def _celery(farm: Farm) -> Celery:
    settings = farm.context.settings.model_copy(update={"broker_url": "redis://127.0.0.1:1/0"})
    return build_celery(TaskContext(farm.context.sessions, settings, farm.context.now))


def test_the_settings_stand_against_the_traps(farm: Farm) -> None:
    conf = _celery(farm).conf
    assert conf.task_acks_late
    assert conf.task_ignore_result
    assert conf.worker_prefetch_multiplier == 1
    assert conf.worker_disable_prefetch
    assert conf.worker_cancel_long_running_tasks_on_connection_loss
    assert not conf.task_reject_on_worker_lost
    assert not conf.worker_hijack_root_logger
    options = conf.broker_transport_options
    assert options["visibility_timeout"] > 2 * TASK_LIMIT_S
    assert options["socket_timeout"]
    assert options["socket_connect_timeout"]


def test_every_scheduled_task_exists_and_does_not_pile_up(farm: Farm) -> None:
    app = _celery(farm)
    assert set(TASKS) <= set(app.tasks)
    for name, entry in app.conf.beat_schedule.items():
        assert entry["options"]["expires"] == SCHEDULE[name]


def test_a_publish_to_a_broker_that_is_away_fails_and_does_not_hang(farm: Farm) -> None:
    app = _celery(farm)
    with pytest.raises(OperationalError):
        app.send_task(SWEEP)
    app.close()


async def test_tasks_do_their_work_and_again_change_nothing(farm: Farm) -> None:
    lab = await Lab.of(farm)
    run = await lab.submit()
    lease = await lab.claim()
    await lab.carry_out(lease)
    tasks = _celery(farm).tasks
    counts = set()
    for _ in range(2):
        tasks[SUMMARISE_ATTEMPT](lease.attempt_id)
        tasks[FINISH_RUN](run.run_id)
        tasks[SWEEP]()
        with farm.context.view() as work:
            assert work.session.get_one(RunRow, run.run_id).state is RunState.COMPLETED
            counts.add(work.session.scalar(select(func.count()).select_from(SampleRow)))
    assert len(counts) == 1
    assert counts != {0}


async def test_finishing_a_run_that_goes_on_does_nothing(farm: Farm) -> None:
    lab = await Lab.of(farm)
    run = await lab.submit()
    _celery(farm).tasks[FINISH_RUN](run.run_id)
    with farm.context.view() as work:
        assert work.session.get_one(RunRow, run.run_id).state is RunState.ACTIVE


async def test_the_sweep_completes_a_run_whose_message_was_lost(farm: Farm) -> None:
    lab = await Lab.of(farm)
    run = await lab.submit()
    await lab.carry_out(await lab.claim())
    sweep_if_due(TaskContext(farm.context.sessions, farm.context.settings), 5.0)
    with farm.context.view() as work:
        assert work.session.get_one(RunRow, run.run_id).state is RunState.COMPLETED


async def test_what_nobody_can_ask_for_any_more_is_forgotten_and_nothing_else(farm: Farm) -> None:
    lab = await Lab.of(farm)
    async with farm.client("submitter", headers={"Idempotency-Key": "k"}) as client:
        await client.post("/v1/runs", json=run_request())
    now = farm.context.now()
    farm.issue(TokenGrant(TokenKind.ENROLMENT, "old", expires_at=now))
    with farm.context.unit_of_work() as work:
        for row in work.session.scalars(select(OutboxRow)):
            row.published_at = now
    early = TaskContext(farm.context.sessions, farm.context.settings, lambda: now + timedelta(hours=23))
    assert forget_expired(early) == 0
    late = TaskContext(farm.context.sessions, farm.context.settings, lambda: now + timedelta(days=8))
    assert forget_expired(late) > 0
    with farm.context.view() as work:
        assert work.session.scalars(select(IdempotencyKeyRow)).all() == []
        assert work.session.scalars(select(OutboxRow)).all() == []
        kept = {row.kind for row in work.session.scalars(select(TokenRow))}
        assert kept >= {TokenKind.USER, TokenKind.AGENT}
        assert "old" not in {row.name for row in work.session.scalars(select(TokenRow))}
    assert lab.agent.token
