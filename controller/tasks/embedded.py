"""Background work of a farm on one machine: the same tasks, carried out in threads of this process."""

import threading
import time
from typing import Any, Final

import structlog

from controller.tasks.catalogue import SCHEDULE, carry_out
from controller.tasks.context import TaskContext

_STEP_S: Final = min(SCHEDULE.values())

_log = structlog.get_logger(__name__)


class EmbeddedTasks:
    """Carries out what is sent, in the outbox's thread, and the periodic tasks in a thread of its own."""

    def __init__(self, context: TaskContext) -> None:
        self._context = context
        self._stopping = threading.Event()
        self._timer = threading.Thread(target=self._tick, name="upkeep", daemon=True)

    def start(self) -> None:
        """Begin with the periodic tasks; each is due at once."""
        self._timer.start()

    def stop(self, deadline_s: float) -> None:
        """End after the task that is going on, at the latest after `deadline_s`."""
        self._stopping.set()
        self._timer.join(deadline_s)

    @property
    def is_alive(self) -> bool:
        """Whether periodic tasks are done."""
        return self._timer.is_alive()

    def send_task(self, name: str, args: list[str]) -> Any:
        """Do it now. One that fails is logged and keeps no other from its turn."""
        try:
            carry_out(self._context, name, *args)
        except Exception:
            _log.exception("task_failed", task=name, args=args)

    def _tick(self) -> None:
        due_s = dict.fromkeys(SCHEDULE, 0.0)
        while not self._stopping.is_set():
            now_s = time.monotonic()
            for name, period_s in SCHEDULE.items():
                if due_s[name] <= now_s and not self._stopping.is_set():
                    due_s[name] = now_s + period_s
                    self.send_task(name, [])
            self._stopping.wait(_STEP_S)
