"""Runs and their jobs."""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, or_, select, true
from sqlalchemy.orm import InstrumentedAttribute, Session

from contract.states import JobState
from controller.db.models import JobRow, RunRow
from controller.errors import JobNotFoundError, RunNotFoundError


class RunRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def get(self, run_id: str) -> RunRow:
        """RunNotFoundError if there is none."""
        return _found(self._session.get(RunRow, run_id), run_id)

    def get_locked(self, run_id: str) -> RunRow:
        """The run, kept from other writers until the transaction ends."""
        return _found(self._session.get(RunRow, run_id, with_for_update=True), run_id)

    def page(self, limit: int, before_run_id: str | None = None) -> list[RunRow]:
        """At most `limit` runs, newest first, made before the given one (ids sort by time)."""
        statement = select(RunRow).order_by(RunRow.run_id.desc()).limit(limit)
        if before_run_id is not None:
            statement = statement.where(RunRow.run_id < before_run_id)
        return list(self._session.scalars(statement))


@dataclass(frozen=True, slots=True)
class Suitable:
    """What devices that look for a job are and have, all of them together."""

    kinds: frozenset[str]
    device_ids: frozenset[str]
    device_models: frozenset[str]
    os_versions: frozenset[str]
    models: frozenset[str]


_MAX_NAMES: Final = 2000
_PLACEMENT: Final[tuple[Any, ...]] = (
    *(JobRow.job_id, JobRow.selector, JobRow.model, JobRow.priority, JobRow.created_at),
    *(JobRow.not_before, JobRow.excluded_devices),
)


class JobRepository:
    """Jobs by id, by run, and those that wait."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get(self, job_id: str) -> JobRow:
        """JobNotFoundError if there is none."""
        return _found_job(self._session.get(JobRow, job_id), job_id)

    def get_locked(self, job_id: str) -> JobRow:
        """The job, kept from other writers until the transaction ends."""
        return _found_job(self._session.get(JobRow, job_id, with_for_update=True), job_id)

    def try_lock_queued(self, job_id: str) -> JobRow | None:
        """The job if it is still queued and nobody else is about to take it; None otherwise."""
        return self._session.scalars(
            select(JobRow)
            .where(JobRow.job_id == job_id, JobRow.state == JobState.QUEUED)
            .with_for_update(skip_locked=True)
            .execution_options(populate_existing=True)
        ).one_or_none()

    def of_runs(self, run_ids: Sequence[str]) -> list[JobRow]:
        """Jobs of these runs, each run's in the order of its matrix."""
        return list(
            self._session.scalars(
                select(JobRow).where(JobRow.run_id.in_(run_ids)).order_by(JobRow.run_id, JobRow.position)
            )
        )

    def any_queued(self) -> bool:
        """Whether a job waits for a device."""
        queued = select(JobRow.job_id).where(JobRow.state == JobState.QUEUED).limit(1)
        return self._session.scalar(queued) is not None

    def queued_for(self, suitable: Suitable) -> Sequence[Row[Any]]:
        """What placement asks of each queued job that may suit, without its spec, which is large."""
        return self._session.execute(
            select(*_PLACEMENT).where(
                JobRow.state == JobState.QUEUED,
                _names_one_of(JobRow.model, suitable.models),
                _names_one_of(JobRow.selector["kind"].as_string(), suitable.kinds),
                _names_one_of(JobRow.selector["device_id"].as_string(), suitable.device_ids),
                _names_one_of(JobRow.selector["device_model"].as_string(), suitable.device_models),
                _names_one_of(JobRow.selector["os_version"].as_string(), suitable.os_versions),
            )
        ).all()


def _names_one_of(
    wanted: ColumnElement[str] | InstrumentedAttribute[str], names: Set[str]
) -> ColumnElement[bool]:
    """Nothing is wanted, or one of the names; of too many for a statement's parameters none is looked at."""
    return or_(wanted.is_(None), wanted.in_(names)) if len(names) <= _MAX_NAMES else true()


def _found(row: RunRow | None, run_id: str) -> RunRow:
    if row is None:
        raise RunNotFoundError(run_id)
    return row


def _found_job(row: JobRow | None, job_id: str) -> JobRow:
    if row is None:
        raise JobNotFoundError(job_id)
    return row
