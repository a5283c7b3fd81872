"""What one transaction of the protocol works with."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random

from sqlalchemy.orm import Session

from controller.db.identifiers import Prefix, new_id
from controller.db.outbox import Outbox, Topic
from controller.db.work_signal import ask_for_signal
from controller.states.times import FarmTimes


@dataclass(frozen=True, slots=True)
class UnitOfWork:
    """An open unit of work, the time at which it happens, the periods in force, and where chance comes from.

    Time and chance are passed in, so that a test can run the protocol on a clock of its own.
    """

    session: Session
    now: datetime
    times: FarmTimes
    chance: Random

    def after(self, seconds: float) -> datetime:
        """The time `seconds` from now."""
        return self.now + timedelta(seconds=seconds)

    def new_id(self, prefix: Prefix) -> str:
        return new_id(prefix, self.now, self.chance)

    def announce(self, topic: Topic, payload: dict[str, str]) -> None:
        """Promise a message in the outbox."""
        Outbox(self.session).add(topic, payload, self.now)

    def wake_claims(self) -> None:
        """Once this is committed, claims that wait look again whether there is work for them."""
        ask_for_signal(self.session)
