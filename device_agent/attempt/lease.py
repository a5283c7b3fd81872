"""What to do next with a lease: `decide(held, facts)` is pure; the shell carries out and reports facts.

Safety: the deadline is the monotonic time at which the request was SENT, plus the ttl,
minus the margin. Past it the agent ends the runtime by itself, because the controller may give the
device to someone else. Nothing touches the device before the first renewal is answered: a claim's
answer may be a repetition, so its age is unknown, and only a renewal's is not.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from contract.agent_api import Lease, Phase, RenewAnswer
from contract.failures import FailureReason
from device_agent.floor.clock import seconds_ns

# The machine slept at least this long: less is scheduling noise between two clock reads.
SLEEP_LIMIT_NS = 2_000_000_000
# A killed process that is still there after this long hangs in the kernel; no signal helps.
UNKILLABLE_NS = 10_000_000_000
FENCE_REASONS = frozenset(
    {FailureReason.LEASE_EXPIRED, FailureReason.HOST_SUSPENDED, FailureReason.ACCEPT_TIMEOUT}
)


class HeldPhase(StrEnum):
    """accepting: before the first renewal's answer. ended: the device is free for another lease."""

    ACCEPTING = "accepting"
    PREPARING = "preparing"
    RUNNING = "running"
    UPLOADING = "uploading"
    ENDED = "ended"


PHASE_WORDS: dict[HeldPhase, Phase] = {
    HeldPhase.ACCEPTING: "preparing",
    HeldPhase.PREPARING: "preparing",
    HeldPhase.RUNNING: "running",
    HeldPhase.UPLOADING: "uploading",
}
"""As the controller calls them."""


class RuntimeCondition(StrEnum):
    """absent: never started. gone: it was there and has ended."""

    ABSENT = "absent"
    ALIVE = "alive"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Durations:
    """Limits and graces of one attempt, all in nanoseconds."""

    prepare_ns: int
    run_ns: int
    upload_ns: int
    stall_ns: int
    cancel_grace_ns: int
    terminate_grace_ns: int
    fence_grace_ns: int


@dataclass(frozen=True, slots=True)
class Held:
    """One lease as its holder knows it. Times are monotonic ns; deadline_ns None: not accepted yet."""

    phase: HeldPhase
    durations: Durations
    since_ns: int
    """When the phase began."""
    accept_until_ns: int
    deadline_ns: int | None
    renew_at_ns: int
    renew_interval_ns: int
    stop: FailureReason | None = None
    stopped_ns: int = 0
    told_cancel: bool = False
    terminated_ns: int | None = None
    killed_ns: int | None = None
    lease_over: bool = False
    """Never renew again: fenced, gone, or given up."""

    def entered(self, phase: HeldPhase, now_ns: int) -> "Held":
        """In a new phase; the controller hears of it at once."""
        return replace(self, phase=phase, since_ns=now_ns, renew_at_ns=now_ns)

    def stopping(self, reason: FailureReason, now_ns: int) -> "Held":
        """Decided to stop; a fence also ends the lease."""
        over = self.lease_over or reason in FENCE_REASONS
        return replace(self, stop=reason, stopped_ns=now_ns, lease_over=over)

    def renewed(self, answer: RenewAnswer, sent_ns: int, jitter: float) -> "Held":
        """Good until sent_ns + ttl - margin. jitter in [0, 1) shortens the interval by up to 20 %."""
        interval_ns = seconds_ns(answer.renew_interval_s)
        return replace(
            self,
            deadline_ns=deadline_ns(sent_ns, answer.ttl_s, answer.margin_s),
            renew_interval_ns=interval_ns,
            renew_at_ns=sent_ns + round(interval_ns * (1 - 0.2 * jitter)),
        )


@dataclass(frozen=True, slots=True)
class Facts:
    """What the shell sees now.

    gap_ns: time since the previous decision; slept_ns: how much of it the machine slept.
    quiet_since_ns: when the last event came. starting: a start is under way and has a deadline of its own.
    collected: every line of an ended runtime is in the spool.
    """

    now_ns: int
    gap_ns: int
    slept_ns: int
    runtime: RuntimeCondition
    quiet_since_ns: int
    ready: bool = False
    cancel: bool = False
    lease_gone: bool = False
    renewing: bool = False
    starting: bool = False
    spool_full: bool = False
    events_invalid: bool = False
    collected: bool = False
    concluded: bool = False
    settled: bool = False
    shutdown: bool = False


@dataclass(frozen=True, slots=True)
class Renew:
    """Ask for more time, and report the phase."""


@dataclass(frozen=True, slots=True)
class Start:
    """Start the runtime."""


@dataclass(frozen=True, slots=True)
class EnterPhase:
    """Move on, and say so in the agent's stream."""

    phase: HeldPhase


@dataclass(frozen=True, slots=True)
class Stop:
    """The attempt ends because of this; ending the runtime follows."""

    reason: FailureReason


@dataclass(frozen=True, slots=True)
class TellCancel:
    """Write the directive into lease.json: the runtime stops at its next step."""


@dataclass(frozen=True, slots=True)
class Terminate:
    """SIGTERM."""


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL."""


@dataclass(frozen=True, slots=True)
class Collect:
    """The runtime has ended: read what its file still has."""


@dataclass(frozen=True, slots=True)
class Conclude:
    """Write the result; from here on it is sent until it is acknowledged, whatever happens to the lease."""


@dataclass(frozen=True, slots=True)
class Release:
    """The device is free."""


Instruction = Renew | Start | EnterPhase | Stop | TellCancel | Terminate | Kill | Collect | Conclude | Release


def deadline_ns(sent_ns: int, ttl_s: float, margin_s: float) -> int:
    """When to stop touching the device: counted from the sending, because the grant cannot be older."""
    return sent_ns + seconds_ns(ttl_s) - seconds_ns(margin_s)


def claimed(lease: Lease, durations: Durations, now_ns: int) -> Held:
    """A lease that was just granted: renew at once, that is the acceptance."""
    return Held(
        phase=HeldPhase.ACCEPTING,
        durations=durations,
        since_ns=now_ns,
        accept_until_ns=now_ns + seconds_ns(lease.ttl_s),
        deadline_ns=None,
        renew_at_ns=now_ns,
        renew_interval_ns=seconds_ns(lease.renew_interval_s),
    )


def decide(held: Held, facts: Facts) -> tuple[Instruction, ...]:
    """The instructions for now, in order; () when there is nothing to do but wait."""
    match held.phase:
        case HeldPhase.ENDED:
            return ()
        case HeldPhase.UPLOADING:
            return _while_uploading(held, facts)
    reason = _stop_reason(held, facts) if held.stop is None else None
    if reason is not None:
        return (Stop(reason),)
    return (*_renewal(held, facts), *_with_runtime(held, facts))


def _with_runtime(held: Held, facts: Facts) -> tuple[Instruction, ...]:
    match facts.runtime:
        case RuntimeCondition.GONE:
            return (EnterPhase(_phase_after_end(held, facts)),) if facts.collected else (Collect(),)
        case RuntimeCondition.ABSENT if facts.starting:
            return ()
        case RuntimeCondition.ABSENT if held.stop is not None:
            return (EnterPhase(HeldPhase.UPLOADING),)
        case RuntimeCondition.ABSENT:
            return _before_start(held)
    if held.stop is not None:
        return _ending(held, held.stop, facts)
    if held.phase is HeldPhase.PREPARING and facts.ready:
        return (EnterPhase(HeldPhase.RUNNING),)
    return ()


def _phase_after_end(held: Held, facts: Facts) -> HeldPhase:
    """A runtime may be ready and gone between two looks: it ran all the same."""
    ran = held.phase is HeldPhase.PREPARING and facts.ready and held.stop is None
    return HeldPhase.RUNNING if ran else HeldPhase.UPLOADING


def _before_start(held: Held) -> tuple[Instruction, ...]:
    if held.deadline_ns is None:
        return ()
    return (EnterPhase(HeldPhase.PREPARING),) if held.phase is HeldPhase.ACCEPTING else (Start(),)


def _stop_reason(held: Held, facts: Facts) -> FailureReason | None:
    """Why to stop now, the most pressing reason first. A runtime that has ended needs no stopping, but
    what it measured while the machine slept does not count."""
    passed = _deadline_passed(held, facts)
    # A whole renewal interval without a decision: this process was stopped, it was not the network.
    if facts.slept_ns >= SLEEP_LIMIT_NS or (passed and facts.gap_ns > held.renew_interval_ns):
        return FailureReason.HOST_SUSPENDED
    if facts.runtime is RuntimeCondition.GONE:
        return None
    if passed or facts.lease_gone:
        return FailureReason.LEASE_EXPIRED
    if held.deadline_ns is None and facts.now_ns >= held.accept_until_ns:
        return FailureReason.ACCEPT_TIMEOUT
    if facts.cancel:
        return FailureReason.CANCELLED
    if facts.shutdown:
        return FailureReason.AGENT_RESTARTED
    if facts.spool_full:
        return FailureReason.STORAGE_HOST
    if facts.events_invalid:
        return FailureReason.EVENTS_INVALID
    return _limit_passed(held, facts)


def _limit_passed(held: Held, facts: Facts) -> FailureReason | None:
    if facts.gap_ns > held.renew_interval_ns:
        # Events that came meanwhile are not read yet: a limit judged now would blame the runtime.
        return None
    in_phase_ns = facts.now_ns - held.since_ns
    durations = held.durations
    if held.phase is HeldPhase.PREPARING and in_phase_ns >= durations.prepare_ns:
        return FailureReason.PREPARE_TIMEOUT
    if held.phase is HeldPhase.RUNNING:
        if in_phase_ns >= durations.run_ns:
            return FailureReason.RUN_TIMEOUT
        if facts.now_ns - max(facts.quiet_since_ns, held.since_ns) >= durations.stall_ns:
            return FailureReason.RUNTIME_STALLED
    return None


def _ending(held: Held, reason: FailureReason, facts: Facts) -> tuple[Instruction, ...]:
    """Ask, then SIGTERM, then SIGKILL, then go on without it; how long each step gets depends on why."""
    durations = held.durations
    fenced = reason in FENCE_REASONS or facts.lease_gone or _deadline_passed(held, facts)
    if held.killed_ns is not None:
        if facts.now_ns - held.killed_ns < UNKILLABLE_NS:
            return ()
        return (EnterPhase(HeldPhase.UPLOADING),) if facts.collected else (Collect(),)
    if held.terminated_ns is not None:
        grace_ns = durations.fence_grace_ns if fenced else durations.terminate_grace_ns
        return (Kill(),) if facts.now_ns - held.terminated_ns >= grace_ns else ()
    if reason is FailureReason.CANCELLED and not fenced:
        if not held.told_cancel:
            return (TellCancel(),)
        if facts.now_ns - held.stopped_ns < durations.cancel_grace_ns:
            return ()
    return (Terminate(),)


def _deadline_passed(held: Held, facts: Facts) -> bool:
    return held.deadline_ns is not None and facts.now_ns >= held.deadline_ns


def _while_uploading(held: Held, facts: Facts) -> tuple[Instruction, ...]:
    if not facts.concluded:
        return (Conclude(),)
    if facts.settled or held.lease_over or facts.lease_gone:
        return (Release(),)
    if held.deadline_ns is None or _deadline_passed(held, facts):
        return (Release(),)
    if facts.now_ns - held.since_ns >= held.durations.upload_ns:
        # The controller ends the attempt by this limit; the device need not wait for a slow network.
        return (Release(),)
    return _renewal(held, facts)


def _renewal(held: Held, facts: Facts) -> tuple[Instruction, ...]:
    due = facts.now_ns >= held.renew_at_ns
    return (Renew(),) if due and not (facts.renewing or held.lease_over or facts.lease_gone) else ()
