"""Runs and their jobs."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from contract.states import JobState
from controller.db.models import JobRow, RunRow
from controller.errors import JobNotFoundError, RunNotFoundError


class RunRepository:
    """Runs by id and newest first."""

    def __init__(self, session: Session) -> None:
        """Within one transaction."""
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


class JobRepository:
    """Jobs by id, by run, and those that wait."""

    def __init__(self, session: Session) -> None:
        """Within one transaction."""
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

    def queued(self) -> list[JobRow]:
        """Every job that waits for a device."""
        return list(self._session.scalars(select(JobRow).where(JobRow.state == JobState.QUEUED)))


def _found(row: RunRow | None, run_id: str) -> RunRow:
    if row is None:
        raise RunNotFoundError(run_id)
    return row


def _found_job(row: JobRow | None, job_id: str) -> JobRow:
    if row is None:
        raise JobNotFoundError(job_id)
    return row
