"""A worker and a timer inside this process, for the broker in memory."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import structlog
from celery import Celery
from celery.concurrency.thread import TaskPool

from controller.tasks.application import SCHEDULE

WORKER_THREADS: Final = 2

_log = structlog.get_logger(__name__)


class _OwnThreads(TaskPool):  # type: ignore[misc]  # celery ships it without annotations
    """Celery's pool of threads, each of which knows its application.

    A pool thread looks the current application up. Without one it falls back to the process's default and
    drops a task that is not registered there, silently.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.executor = ThreadPoolExecutor(self.limit, "celery", initializer=self.app.set_current)


class EmbeddedWorker:
    """Celery's worker in a daemon thread, with a pool of threads, and its scheduler in another."""

    def __init__(self, app: Celery) -> None:
        """`app` is this worker's alone: its queue lives in this process."""
        self._app = app
        self._controller = app.WorkController(
            pool_cls=_OwnThreads,
            concurrency=WORKER_THREADS,
            without_mingle=True,
            without_gossip=True,
            without_heartbeat=True,
            optimization="default",
        )
        self._worker = threading.Thread(target=self._work, name="celery-worker", daemon=True)
        self._stopping = threading.Event()
        self._timer = threading.Thread(target=self._tick, name="celery-timer", daemon=True)

    def start(self) -> None:
        """Begin to take tasks, and to send the periodic ones."""
        self._worker.start()
        self._timer.start()

    @property
    def is_alive(self) -> bool:
        """Whether tasks are taken."""
        return self._worker.is_alive()

    def stop(self, deadline_s: float) -> bool:
        """Let running tasks end; False when the worker has not ended within `deadline_s`.

        The worker's own stop waits for tasks without a bound, so it runs in a thread that is left behind.
        """
        self._stopping.set()
        stopper = threading.Thread(target=self._controller.stop, name="celery-stop", daemon=True)
        stopper.start()
        stopper.join(deadline_s)
        self._worker.join(max(0.0, deadline_s / 2))
        return not stopper.is_alive() and not self._worker.is_alive()

    def _work(self) -> None:
        self._app.set_current()
        try:
            self._controller.start()
        except Exception:
            # Nothing depends on it but promptness; reports and gates are computed when they are asked for.
            _log.exception("embedded_worker_died")

    def _tick(self) -> None:
        """Send each periodic task when its period is over; the first time at once."""
        waited_s = dict.fromkeys(SCHEDULE, float("inf"))
        step_s = min(SCHEDULE.values())
        while not self._stopping.is_set():
            for name, period_s in SCHEDULE.items():
                if waited_s[name] >= period_s:
                    self._app.send_task(name, expires=period_s)
                    waited_s[name] = 0.0
                waited_s[name] += step_s
            self._stopping.wait(step_s)
