"""The outbox reaches the broker after the commit; what the broker does not take waits and is never lost."""

import time
from dataclasses import dataclass, field
from typing import Any

import pytest
from kombu.exceptions import OperationalError
from sqlalchemy import func, select

from controller.db.models import OutboxRow
from controller.db.outbox import Topic
from controller.tasks.catalogue import FINISH_RUN, SUMMARISE_ATTEMPT
from controller.tasks.context import TaskContext
from controller.tasks.publisher import TASK_OF_TOPIC, OutboxPublisher
from tests.fakes.farm import Farm

DEADLINE_S = 20.0


@dataclass
class FakeBroker:
    """Takes tasks while it is up; `breaks_after` more of them at most."""

    sent: list[tuple[str, list[str]]] = field(default_factory=list)
    breaks_after: int | None = None

    def send_task(self, name: str, args: list[str]) -> Any:
        """What Celery does with a broker that is away."""
        if self.breaks_after is not None and len(self.sent) >= self.breaks_after:
            raise OperationalError("connection refused")
        self.sent.append((name, args))


def _promise(farm: Farm, *topics: tuple[Topic, dict[str, str]]) -> None:
    with farm.context.unit_of_work() as work:
        for topic, payload in topics:
            work.announce(topic, payload)


def _unpublished(farm: Farm) -> int:
    with farm.context.view() as work:
        waiting = select(func.count()).select_from(OutboxRow).where(OutboxRow.published_at.is_(None))
        return work.session.scalar(waiting) or 0


def _publisher(farm: Farm, broker: FakeBroker) -> OutboxPublisher:
    return OutboxPublisher(TaskContext(farm.context.sessions, farm.context.settings), broker)


ENDED = (Topic.ATTEMPT_ENDED, {"attempt_id": "att_1"})
CHANGED = (Topic.RUN_CHANGED, {"run_id": "run_1"})


def test_each_message_becomes_its_task_once_and_in_order(farm: Farm) -> None:
    broker = FakeBroker()
    publisher = _publisher(farm, broker)
    _promise(farm, ENDED, CHANGED)
    assert publisher.publish() == 2
    assert publisher.publish() == 0
    assert broker.sent == [(SUMMARISE_ATTEMPT, ["att_1"]), (FINISH_RUN, ["run_1"])]
    assert _unpublished(farm) == 0


def test_what_was_not_committed_is_not_published(farm: Farm) -> None:
    def crash() -> None:
        with farm.context.unit_of_work() as work:
            work.announce(*ENDED)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        crash()
    assert _publisher(farm, FakeBroker()).publish() == 0


def test_what_the_broker_did_not_take_is_tried_again_and_the_rest_is_not_repeated(farm: Farm) -> None:
    broker = FakeBroker(breaks_after=1)
    publisher = _publisher(farm, broker)
    _promise(farm, ENDED, CHANGED)
    with pytest.raises(OperationalError):
        publisher.publish()
    assert _unpublished(farm) == 1
    broker.breaks_after = None
    assert publisher.publish() == 1
    assert broker.sent == [(SUMMARISE_ATTEMPT, ["att_1"]), (FINISH_RUN, ["run_1"])]


def test_every_topic_has_a_task() -> None:
    assert set(TASK_OF_TOPIC) == set(Topic)


def test_a_message_of_another_version_is_put_aside(farm: Farm) -> None:
    with farm.context.unit_of_work() as work:
        work.session.add(OutboxRow(topic="job_queued", payload={"job_id": "job_1"}, created_at=work.now))
    broker = FakeBroker()
    assert _publisher(farm, broker).publish() == 1
    assert broker.sent == []


def test_the_thread_publishes_what_an_earlier_process_left_and_what_it_is_woken_for(farm: Farm) -> None:
    broker = FakeBroker()
    publisher = _publisher(farm, broker)
    _promise(farm, ENDED)
    publisher.start()
    _wait(lambda: len(broker.sent) == 1)
    _promise(farm, CHANGED)
    publisher.wake()
    _wait(lambda: len(broker.sent) == 2)
    publisher.stop(DEADLINE_S)
    assert _unpublished(farm) == 0


def test_the_thread_outlives_a_broker_that_is_away(farm: Farm) -> None:
    broker = FakeBroker(breaks_after=0)
    publisher = _publisher(farm, broker)
    _promise(farm, ENDED)
    publisher.start()
    publisher.wake()
    broker.breaks_after = None
    publisher.wake()
    _wait(lambda: len(broker.sent) == 1)
    publisher.stop(DEADLINE_S)
    assert _unpublished(farm) == 0


def _wait(done: Any) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not done():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
