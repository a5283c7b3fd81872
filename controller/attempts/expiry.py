"""The end of leases that nobody renewed: looked at in every call of an agent, and by the sweep."""

from controller.attempts.endings import Ending, end_attempt
from controller.attempts.states import AttemptCause
from controller.attempts.unit_of_work import UnitOfWork
from controller.db.attempts import AttemptRepository, LeaseRepository


def expire_overdue(work: UnitOfWork) -> int:
    """End the attempts of all leases whose time is over; returns how many.

    Doing it lazily means that no answer ever depends on how long ago the sweep ran.
    """
    work.session.flush()
    overdue = LeaseRepository(work.session).overdue(work.now)
    for lease in overdue:
        attempt = AttemptRepository(work.session).get_locked(lease.attempt_id)
        detail = f"last renewal at {lease.renewed_at.isoformat()}"
        end_attempt(work, attempt, Ending(AttemptCause.LEASE_EXPIRED, detail=detail))
        work.session.flush()
    return len(overdue)
