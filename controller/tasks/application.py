"""The Celery application: its settings, each with what breaks without it.

Tasks are registered on the one application that was built for a context, never shared between applications:
two of them in one process would take each other's messages.
"""

import uuid
from datetime import timedelta
from typing import Any, Final

from celery import Celery

from controller.runs.reports import conclude_if_due
from controller.runs.results import summarise
from controller.tasks.context import TaskContext
from controller.tasks.upkeep import forget_expired, sweep_if_due

SUMMARISE_ATTEMPT: Final = "dynofarm.summarise_attempt"
FINISH_RUN: Final = "dynofarm.finish_run"
SWEEP: Final = "dynofarm.sweep"
FORGET_EXPIRED: Final = "dynofarm.forget_expired"

SWEEP_INTERVAL_S: Final = 5.0
FORGET_INTERVAL_S: Final = 3600.0
TASK_LIMIT_S: Final = 60
_VISIBILITY_S: Final = 600

SCHEDULE: Final = {SWEEP: SWEEP_INTERVAL_S, FORGET_EXPIRED: FORGET_INTERVAL_S}
"""Task to its period in seconds; any number of schedulers may send it."""

# Bounded waits on every socket: a publish must never hang (the default is no time-out at all).
_SOCKET_OPTIONS: Final[dict[str, Any]] = {
    "visibility_timeout": _VISIBILITY_S,
    "socket_timeout": 10,
    "socket_connect_timeout": 5,
    "socket_keepalive": True,
}


def is_in_memory(broker_url: str) -> bool:
    """Whether the broker lives inside this process, so that its worker has to as well."""
    return broker_url.startswith("memory://")


def build_celery(context: TaskContext) -> Celery:
    """An application with its tasks, for the broker that the settings name."""
    app = Celery("dynofarm", set_as_current=False)
    app.conf.update(_settings(context.settings.broker_url))
    _register(app, context)
    return app


def _settings(broker_url: str) -> dict[str, Any]:
    in_memory = is_in_memory(broker_url)
    return {
        "broker_url": "memory://localhost//" if in_memory else broker_url,
        "broker_transport_options": {"polling_interval": 0.05} if in_memory else _SOCKET_OPTIONS,
        "broker_connection_timeout": 5,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        # Queues in memory belong to the process: each application takes one of its own.
        "task_default_queue": f"dynofarm-{uuid.uuid4().hex}" if in_memory else "dynofarm",
        "task_serializer": "json",
        "accept_content": ["json"],
        "task_ignore_result": True,
        "task_store_errors_even_if_ignored": False,
        "task_publish_retry": False,
        "task_acks_late": True,
        "task_reject_on_worker_lost": False,
        "task_time_limit": TASK_LIMIT_S + 10,
        "task_soft_time_limit": TASK_LIMIT_S,
        "worker_prefetch_multiplier": 1,
        "worker_disable_prefetch": not in_memory,
        "worker_cancel_long_running_tasks_on_connection_loss": True,
        "worker_soft_shutdown_timeout": 20.0,
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        "worker_send_task_events": False,
        "enable_utc": True,
        "timezone": "UTC",
        "beat_schedule": {
            name: {"task": name, "schedule": timedelta(seconds=period_s), "options": {"expires": period_s}}
            for name, period_s in SCHEDULE.items()
        },
    }


def _register(app: Celery, context: TaskContext) -> None:
    @app.task(name=SUMMARISE_ATTEMPT, shared=False)
    def summarise_attempt(attempt_id: str) -> None:
        summarise(context, attempt_id)

    @app.task(name=FINISH_RUN, shared=False)
    def finish_run(run_id: str) -> None:
        conclude_if_due(context, run_id)

    @app.task(name=SWEEP, shared=False)
    def sweep() -> None:
        sweep_if_due(context, SWEEP_INTERVAL_S)

    @app.task(name=FORGET_EXPIRED, shared=False)
    def forget() -> None:
        forget_expired(context)
