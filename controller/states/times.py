"""Every period of the lease protocol, in seconds."""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class FarmTimes:
    """The defaults are those of the protocol; tests shrink them.

    The controller may grant a device again `hold_s` after a lease ran out. That is safe as long as the
    holder stops `margin_s` before its ttl, counted from when it SENT the request, and the clocks of the
    two machines do not drift apart by more than margin_s + hold_s within one ttl.
    """

    lease_ttl_s: float = 60.0
    margin_min_s: float = 3.0
    margin_part: float = 0.05
    hold_s: float = 10.0
    accept_s: float = 30.0
    hello_interval_s: float = 30.0
    claim_wait_s: float = 50.0
    agent_offline_s: float = 60.0
    absent_after_s: float = 15.0
    """A device that its agent no longer reports counts as gone after this long (debounce)."""
    limit_grace_s: float = 30.0
    """The agent enforces an attempt's limits first and knows why; the controller does it this much later."""
    preparing_s: float = 300.0
    checking_s: float = 300.0
    cleaning_s: float = 120.0
    recovering_s: float = 900.0
    condition_s: float = 3600.0
    """How long a device may cool or charge before something must be wrong with it."""
    recheck_s: tuple[float, ...] = (3600.0, 6 * 3600.0, 24 * 3600.0)
    """A quarantined device is checked again after each of these, then only by a person."""
    faults_to_quarantine: int = 3
    retry_backoff_s: float = 5.0
    retry_backoff_max_s: float = 300.0
    age_boost_s: float = 600.0
    """A queued job gains one priority for each of these, so that nothing starves."""
    events_min_interval_s: float = 0.0
    """Agents are asked to leave at least this much time between two uploads of a stream."""
    claim_kept_s: float = 3600.0
    """How long the answer to a claim_id is remembered; an agent repeats within its call's deadline."""

    @property
    def renew_interval_s(self) -> float:
        """A third of the ttl: two renewals may be lost."""
        return self.lease_ttl_s / 3

    @property
    def margin_s(self) -> float:
        """How much earlier than the controller the agent lets go."""
        return max(self.margin_min_s, self.margin_part * self.lease_ttl_s)

    @property
    def lease_ttl(self) -> timedelta:
        """The ttl as a duration."""
        return timedelta(seconds=self.lease_ttl_s)

    @property
    def hold(self) -> timedelta:
        """The hold as a duration."""
        return timedelta(seconds=self.hold_s)
