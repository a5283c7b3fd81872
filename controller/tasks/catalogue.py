"""The tasks by name, and how often a periodic one is due: the same for Celery and for an embedded farm."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

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

TASKS: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType(
    {
        SUMMARISE_ATTEMPT: summarise,
        FINISH_RUN: conclude_if_due,
        SWEEP: lambda context: sweep_if_due(context, SWEEP_INTERVAL_S),
        FORGET_EXPIRED: forget_expired,
    }
)
"""Each takes the context and ids, and may run twice."""

SCHEDULE: Final = MappingProxyType({SWEEP: SWEEP_INTERVAL_S, FORGET_EXPIRED: FORGET_INTERVAL_S})
"""Task to its period in seconds; any number of schedulers may send it."""


def carry_out(context: TaskContext, name: str, *ids: str) -> None:
    """Do one task now."""
    TASKS[name](context, *ids)
