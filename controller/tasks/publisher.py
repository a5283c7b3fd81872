"""The outbox to the broker, after the commit: the thread that does it, and what becomes of each message.

A message may be published twice (a crash between publishing and marking), never lost: what the broker did not
take stays unmarked and is tried again.
"""

import threading
from typing import Any, Final, Protocol

import structlog
from kombu.exceptions import OperationalError

from controller.db.outbox import Outbox, Topic
from controller.db.session import read_only
from controller.errors import STORE_ERRORS, StoreBusyError
from controller.tasks.catalogue import FINISH_RUN, SUMMARISE_ATTEMPT
from controller.tasks.context import TaskContext

LOOK_INTERVAL_S: Final = 2.0
RETRY_INTERVAL_S: Final = 5.0

_log = structlog.get_logger(__name__)


class Sender(Protocol):
    """A Celery application, or the tasks of an embedded farm."""

    def send_task(self, name: str, args: list[str]) -> Any:
        """See that the task is done; kombu's OperationalError when the broker is away."""


TASK_OF_TOPIC: Final = {
    Topic.ATTEMPT_ENDED: (SUMMARISE_ATTEMPT, "attempt_id"),
    Topic.RUN_CHANGED: (FINISH_RUN, "run_id"),
}
"""Topic to its task and the id that it takes."""


class OutboxPublisher:
    """Publishes in a thread of its own, so that no request ever waits for the broker."""

    def __init__(self, context: TaskContext, sender: Sender) -> None:
        """Nothing is published yet."""
        self._context = context
        self._sender = sender
        self._look = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)

    def start(self) -> None:
        """Begin; the first look takes what an earlier process left behind."""
        self._thread.start()

    def wake(self) -> None:
        """Look now; cheap, and may be called from any thread."""
        self._look.set()

    def stop(self, deadline_s: float) -> None:
        """End after the look that is going on, at the latest after `deadline_s`."""
        self._stopping.set()
        self._look.set()
        self._thread.join(deadline_s)

    def publish(self) -> int:
        """Publish what is waiting; returns how many. OperationalError when the broker is away."""
        with read_only(self._context.sessions) as session:
            waiting = [(row.outbox_id, row.topic, row.payload) for row in Outbox(session).unpublished()]
        published: list[int] = []
        try:
            for outbox_id, topic, payload in waiting:
                self._publish_one(topic, payload)
                published.append(outbox_id)
        finally:
            if published:
                with self._context.unit_of_work() as work:
                    Outbox(work.session).mark_published(published, work.now)
        return len(published)

    def _publish_one(self, topic: str, payload: dict[str, str]) -> None:
        if topic not in TASK_OF_TOPIC:
            # Left behind by another version, which told waiting claims of queued jobs like this.
            return
        task, identifier = TASK_OF_TOPIC[Topic(topic)]
        self._sender.send_task(task, args=[payload[identifier]])

    def _run(self) -> None:
        pause_s = LOOK_INTERVAL_S
        while not self._stopping.is_set():
            try:
                self.publish()
                pause_s = LOOK_INTERVAL_S
            except OperationalError as error:
                _log.warning("broker_unreachable", detail=str(error), retry_s=RETRY_INTERVAL_S)
                pause_s = RETRY_INTERVAL_S
            except StoreBusyError:
                pause_s = LOOK_INTERVAL_S
            except STORE_ERRORS as error:
                _log.warning("store_unusable", detail=str(error), retry_s=RETRY_INTERVAL_S)
                pause_s = RETRY_INTERVAL_S
            except Exception:
                # The thread must outlive whatever one look met; the rows are still there.
                _log.exception("outbox_failed")
                pause_s = RETRY_INTERVAL_S
            self._look.wait(pause_s)
            self._look.clear()
