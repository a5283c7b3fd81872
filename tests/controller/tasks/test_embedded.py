"""The worker inside the process: takes tasks, survives one that fails, and stops within its deadline."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery

from controller.tasks.application import build_celery
from controller.tasks.context import TaskContext
from controller.tasks.embedded import EmbeddedWorker
from tests.fakes.farm import Farm

DEADLINE_S = 30.0


@pytest.fixture
def app(farm: Farm) -> Iterator[Celery]:
    made = build_celery(TaskContext(farm.context.sessions, farm.context.settings))
    yield made
    made.close()


def _counting(app: Celery) -> tuple[Any, list[int]]:
    seen: list[int] = []

    @app.task(name="test.count", shared=False)
    def count(number: int) -> None:
        if number < 0:
            raise ValueError("a task that fails")
        seen.append(number)

    return count, seen


def _wait(done: Any) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not done():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def test_tasks_are_carried_out_and_one_that_fails_does_not_stop_the_others(app: Celery) -> None:
    count, seen = _counting(app)
    worker = EmbeddedWorker(app)
    worker.start()
    for number in (1, -1, 2, 3):
        count.delay(number)
    _wait(lambda: sorted(seen) == [1, 2, 3])
    assert worker.is_alive
    assert worker.stop(DEADLINE_S)
    assert not worker.is_alive


def test_two_workers_in_one_process_do_not_take_each_other_s_tasks(farm: Farm, app: Celery) -> None:
    other = build_celery(TaskContext(farm.context.sessions, farm.context.settings))
    count, seen = _counting(app)
    other_count, other_seen = _counting(other)
    workers = [EmbeddedWorker(app), EmbeddedWorker(other)]
    for worker in workers:
        worker.start()
    for number in range(10):
        count.delay(number)
        other_count.delay(100 + number)
    _wait(lambda: len(seen) == len(other_seen) == 10)
    assert sorted(seen) == list(range(10))
    assert sorted(other_seen) == list(range(100, 110))
    assert all(worker.stop(DEADLINE_S) for worker in workers)
    other.close()


def test_a_task_that_does_not_end_is_left_behind_at_the_deadline(app: Celery) -> None:
    begun, release = threading.Event(), threading.Event()

    @app.task(name="test.hang", shared=False)
    def hang() -> None:
        begun.set()
        release.wait(DEADLINE_S)

    worker = EmbeddedWorker(app)
    worker.start()
    hang.delay()
    assert begun.wait(DEADLINE_S)
    assert not worker.stop(0.2)
    release.set()
