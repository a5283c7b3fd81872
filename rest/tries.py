"""Whether and when a failed call is tried again. Decides only: no clock, no sleep, no network."""

from dataclasses import dataclass, field

from rest.backoff import Backoff
from rest.errors import ControllerUnreachableError, RestError, UnavailableError


@dataclass(frozen=True, slots=True)
class Patience:
    """How long one try may take, connecting included, and for how long a failed call is tried again."""

    call_s: float = 30.0
    connect_s: float = 5.0
    give_up_after_s: float = 3.0
    """After this no new try begins; 0: one try only; infinity: until it succeeds or is refused."""
    first_wait_s: float = 0.1
    longest_wait_s: float = 2.0


@dataclass(slots=True)
class Tries:
    """Those of one call, which began at `started_s`. repeatable: a lost answer may be asked for again."""

    patience: Patience
    repeatable: bool
    started_s: float
    _backoff: Backoff = field(init=False)

    def __post_init__(self) -> None:
        self._backoff = Backoff(self.patience.first_wait_s, self.patience.longest_wait_s)

    def wait_s(self, error: RestError, now_s: float) -> float:
        """Seconds until the next try; raises the error when there is to be none."""
        wait_s = max(self._backoff.next_s(), error.retry_after_s or 0.0)
        if not self._may_repeat(error) or now_s + wait_s > self.started_s + self.patience.give_up_after_s:
            raise error
        return wait_s

    def _may_repeat(self, error: RestError) -> bool:
        if not isinstance(error, UnavailableError) or not error.retryable:
            return False
        # Without a connection nothing was sent, so even a call with effects may be tried again.
        return self.repeatable or (isinstance(error, ControllerUnreachableError) and not error.was_sent)
