"""The Celery application of a farm on several machines. What breaks without a setting stands beside it.

Tasks are registered on the one application that was built for a context, never shared between applications:
two of them in one process would take each other's messages.
"""

from datetime import timedelta
from typing import Any, Final

from celery import Celery

from controller.tasks.catalogue import SCHEDULE, TASKS, carry_out
from controller.tasks.context import TaskContext

TASK_LIMIT_S: Final = 60
_VISIBILITY_S: Final = 600

# Bounded waits on every socket: a publish must never hang (by default there is no time-out at all).
_SOCKET_OPTIONS: Final[dict[str, Any]] = {
    "visibility_timeout": _VISIBILITY_S,
    "socket_timeout": 10,
    "socket_connect_timeout": 5,
    "socket_keepalive": True,
}


def build_celery(context: TaskContext) -> Celery:
    """An application with its tasks, for the broker that the settings name."""
    app = Celery("dynofarm", set_as_current=False)
    app.conf.update(_settings(context.settings.broker_url))
    _register(app, context)
    return app


def _settings(broker_url: str) -> dict[str, Any]:
    return {
        "broker_url": broker_url,
        "broker_transport_options": _SOCKET_OPTIONS,
        "broker_connection_timeout": 5,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "task_default_queue": "dynofarm",
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
        "worker_disable_prefetch": True,
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
    for name in TASKS:

        @app.task(name=name, shared=False)
        def task(*ids: str, name: str = name) -> None:
            carry_out(context, name, *ids)
