"""Attempts and the leases under which they run."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.orm import Session

from controller.db.models import AttemptRow, ClaimRow, EventStreamRow, LeaseRow
from controller.errors import AttemptNotFoundError


class AttemptRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def get(self, attempt_id: str) -> AttemptRow:
        """AttemptNotFoundError if there is none."""
        return _found(self._session.get(AttemptRow, attempt_id), attempt_id)

    def get_locked(self, attempt_id: str) -> AttemptRow:
        """The attempt, kept from other writers until the transaction ends."""
        return _found(
            self._session.get(AttemptRow, attempt_id, with_for_update=True, populate_existing=True),
            attempt_id,
        )

    def of_jobs(self, job_ids: Sequence[str]) -> list[AttemptRow]:
        """Attempts of these jobs, each job's by number."""
        return list(
            self._session.scalars(
                select(AttemptRow)
                .where(AttemptRow.job_id.in_(job_ids))
                .order_by(AttemptRow.job_id, AttemptRow.number)
            )
        )

    def live(self) -> list[AttemptRow]:
        """Every attempt that has not ended."""
        return list(self._session.scalars(select(AttemptRow).where(AttemptRow.ended_at.is_(None))))

    def next_seqs(self, attempt_ids: Sequence[str]) -> dict[str, dict[str, int]]:
        """Per attempt and stream, the next event that is expected."""
        found: dict[str, dict[str, int]] = {attempt_id: {} for attempt_id in attempt_ids}
        for row in self._session.scalars(
            select(EventStreamRow).where(EventStreamRow.attempt_id.in_(attempt_ids))
        ):
            found[row.attempt_id][row.stream.value] = row.next_seq
        return found


class LeaseRepository:
    """Leases, live and gone, and what claims were answered."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def find(self, lease_id: str) -> LeaseRow | None:
        """The lease, locked; None if there never was one."""
        return self._session.get(LeaseRow, lease_id, with_for_update=True, populate_existing=True)

    def live_of_attempt(self, attempt_id: str) -> LeaseRow | None:
        """The lease of an attempt while it is not released."""
        return self._session.scalars(
            select(LeaseRow).where(LeaseRow.attempt_id == attempt_id, LeaseRow.released_at.is_(None))
        ).one_or_none()

    def live_of_device(self, device_id: str) -> LeaseRow | None:
        """The lease on a device while it is not released."""
        return self._session.scalars(
            select(LeaseRow).where(LeaseRow.device_id == device_id, LeaseRow.released_at.is_(None))
        ).one_or_none()

    def live_by_device(self) -> dict[str, LeaseRow]:
        """Every unreleased lease, by device."""
        rows = self._session.scalars(select(LeaseRow).where(LeaseRow.released_at.is_(None)))
        return {row.device_id: row for row in rows}

    def leased_devices(self) -> frozenset[str]:
        """Devices with an unreleased lease."""
        return frozenset(
            self._session.scalars(select(LeaseRow.device_id).where(LeaseRow.released_at.is_(None)))
        )

    def devices_of(self, lease_ids: Sequence[str]) -> frozenset[str]:
        """The devices of these leases, live or not; ids that never were are left out."""
        return frozenset(
            self._session.scalars(select(LeaseRow.device_id).where(LeaseRow.lease_id.in_(lease_ids)))
        )

    def overdue(self, now: datetime) -> list[LeaseRow]:
        """Unreleased leases whose time is over, locked, oldest first; what another writer has is left."""
        return list(
            self._session.scalars(
                select(LeaseRow)
                .where(LeaseRow.released_at.is_(None), LeaseRow.expires_at <= now)
                .order_by(LeaseRow.expires_at, LeaseRow.lease_id)
                .with_for_update(skip_locked=True)
                .execution_options(populate_existing=True)
            )
        )

    def answered(self, claim_ids: Collection[str]) -> frozenset[str]:
        """Those of the claims that have an answer."""
        return frozenset(
            self._session.scalars(select(ClaimRow.claim_id).where(ClaimRow.claim_id.in_(claim_ids)))
        )

    def close_claims(self, agents: Mapping[str, str], now: datetime) -> frozenset[str]:
        """Answer these claims, each with its agent, with nothing; returns those that had no answer yet."""
        insert = sqlite_insert if self._session.get_bind().dialect.name == "sqlite" else postgresql_insert
        rows = [
            {"claim_id": claim_id, "device_agent_id": device_agent_id, "created_at": now}
            for claim_id, device_agent_id in agents.items()
        ]
        closed = insert(ClaimRow).values(rows).on_conflict_do_nothing().returning(ClaimRow.claim_id)
        return frozenset(self._session.scalars(closed))

    def claim(self, claim_id: str) -> ClaimRow | None:
        """What this claim was answered, if it was."""
        return self._session.get(ClaimRow, claim_id)


def _found(row: AttemptRow | None, attempt_id: str) -> AttemptRow:
    if row is None:
        raise AttemptNotFoundError(attempt_id)
    return row
