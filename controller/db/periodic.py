"""Periodic work guards itself: any number of schedulers may ask, one of them gets each period."""

from datetime import datetime, timedelta

from sqlalchemy import insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from controller.db.models import PeriodicMarkRow


def take_period(session: Session, name: str, interval: timedelta, now: datetime) -> bool:
    """True for whoever is first in a period of this work; in one unit of work with nothing else."""
    taken = session.execute(
        update(PeriodicMarkRow)
        .where(PeriodicMarkRow.name == name, PeriodicMarkRow.last_run_at <= now - interval)
        .values(last_run_at=now)
        .returning(PeriodicMarkRow.name)
    ).all()
    if taken:
        return True
    if session.scalar(select(PeriodicMarkRow.name).where(PeriodicMarkRow.name == name)) is not None:
        return False
    try:
        with session.begin_nested():
            session.execute(insert(PeriodicMarkRow).values(name=name, last_run_at=now))
    except IntegrityError:
        # Another process made the first mark a moment ago.
        return False
    return True
