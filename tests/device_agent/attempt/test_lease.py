"""What to do with a lease, as tables: one line, one situation."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.agent_api import Lease, RenewAnswer
from contract.failures import FailureReason
from device_agent.attempt.lease import (
    FENCE_REASONS,
    SLEEP_LIMIT_NS,
    UNKILLABLE_NS,
    Collect,
    Conclude,
    Durations,
    EnterPhase,
    Facts,
    Held,
    HeldPhase,
    Instruction,
    Kill,
    Release,
    Renew,
    RuntimeCondition,
    Start,
    Stop,
    TellCancel,
    Terminate,
    claimed,
    deadline_ns,
    decide,
)
from tests.fakes.attempts import attempt_spec

S = 1_000_000_000
ALIVE, ABSENT, GONE = RuntimeCondition.ALIVE, RuntimeCondition.ABSENT, RuntimeCondition.GONE
DURATIONS = Durations(
    prepare_ns=300 * S,
    run_ns=3600 * S,
    upload_ns=300 * S,
    stall_ns=120 * S,
    cancel_grace_ns=10 * S,
    terminate_grace_ns=5 * S,
    fence_grace_ns=1 * S,
)
NOW = 1000 * S
# A lease in the middle of its life: 40 s are left, the next renewal is in 10 s.
RUNNING = Held(
    phase=HeldPhase.RUNNING,
    durations=DURATIONS,
    since_ns=NOW - 100 * S,
    accept_until_ns=NOW - 500 * S,
    deadline_ns=NOW + 40 * S,
    renew_at_ns=NOW + 10 * S,
    renew_interval_ns=20 * S,
)
PREPARING = replace(RUNNING, phase=HeldPhase.PREPARING)
UPLOADING = replace(RUNNING, phase=HeldPhase.UPLOADING)
ACCEPTING = replace(
    RUNNING,
    phase=HeldPhase.ACCEPTING,
    deadline_ns=None,
    accept_until_ns=NOW + 60 * S,
    renew_at_ns=NOW,
)
CALM = Facts(now_ns=NOW, gap_ns=S // 5, slept_ns=0, runtime=ALIVE, quiet_since_ns=NOW)


def stopping(held: Held, reason: FailureReason, ago_ns: int = 0) -> Held:
    return held.stopping(reason, NOW - ago_ns)


R = FailureReason
CASES: dict[str, tuple[Held, Facts, tuple[Instruction, ...]]] = {
    "nothing to do": (RUNNING, CALM, ()),
    "the claim is accepted by the first renewal": (ACCEPTING, replace(CALM, runtime=ABSENT), (Renew(),)),
    "nothing starts before it is answered": (
        ACCEPTING,
        replace(CALM, runtime=ABSENT, renewing=True),
        (),
    ),
    "answered: prepare": (
        replace(ACCEPTING, deadline_ns=NOW + 57 * S, renew_at_ns=NOW + S),
        replace(CALM, runtime=ABSENT),
        (EnterPhase(HeldPhase.PREPARING),),
    ),
    "never answered within the ttl": (
        replace(ACCEPTING, accept_until_ns=NOW),
        replace(CALM, runtime=ABSENT, renewing=True),
        (Stop(R.ACCEPT_TIMEOUT),),
    ),
    "preparing starts the runtime": (PREPARING, replace(CALM, runtime=ABSENT), (Start(),)),
    "one start at a time": (PREPARING, replace(CALM, runtime=ABSENT, starting=True), ()),
    "a start under way is waited for": (
        stopping(PREPARING, R.CANCELLED),
        replace(CALM, runtime=ABSENT, starting=True),
        (),
    ),
    "a ready runtime runs": (PREPARING, replace(CALM, ready=True), (EnterPhase(HeldPhase.RUNNING),)),
    "renewal is due": (replace(RUNNING, renew_at_ns=NOW), CALM, (Renew(),)),
    "one renewal at a time": (replace(RUNNING, renew_at_ns=NOW), replace(CALM, renewing=True), ()),
    "a new phase is told at once": (RUNNING.entered(HeldPhase.RUNNING, NOW), CALM, (Renew(),)),
    "the last ns of the lease": (replace(RUNNING, deadline_ns=NOW + 1), CALM, ()),
    "self-fence at the deadline": (replace(RUNNING, deadline_ns=NOW), CALM, (Stop(R.LEASE_EXPIRED),)),
    "self-fence after the process was stopped": (
        replace(RUNNING, deadline_ns=NOW),
        replace(CALM, gap_ns=21 * S),
        (Stop(R.HOST_SUSPENDED),),
    ),
    "the machine slept, the lease looks alive": (
        RUNNING,
        replace(CALM, slept_ns=SLEEP_LIMIT_NS),
        (Stop(R.HOST_SUSPENDED),),
    ),
    "clock noise is not a sleep": (RUNNING, replace(CALM, slept_ns=SLEEP_LIMIT_NS - 1), ()),
    "lease gone": (RUNNING, replace(CALM, lease_gone=True), (Stop(R.LEASE_EXPIRED),)),
    "cancel": (RUNNING, replace(CALM, cancel=True), (Stop(R.CANCELLED),)),
    "cancel before the start": (
        PREPARING,
        replace(CALM, runtime=ABSENT, cancel=True),
        (Stop(R.CANCELLED),),
    ),
    "shutdown": (RUNNING, replace(CALM, shutdown=True), (Stop(R.AGENT_RESTARTED),)),
    "disk full": (RUNNING, replace(CALM, spool_full=True), (Stop(R.STORAGE_HOST),)),
    "broken events": (RUNNING, replace(CALM, events_invalid=True), (Stop(R.EVENTS_INVALID),)),
    "a fence comes before a cancellation": (
        replace(RUNNING, deadline_ns=NOW),
        replace(CALM, cancel=True),
        (Stop(R.LEASE_EXPIRED),),
    ),
    "prepare limit": (
        replace(PREPARING, since_ns=NOW - 300 * S),
        CALM,
        (Stop(R.PREPARE_TIMEOUT),),
    ),
    "run limit": (replace(RUNNING, since_ns=NOW - 3600 * S), CALM, (Stop(R.RUN_TIMEOUT),)),
    "stall limit": (
        replace(RUNNING, since_ns=NOW - 200 * S),
        replace(CALM, quiet_since_ns=NOW - 120 * S),
        (Stop(R.RUNTIME_STALLED),),
    ),
    "silence while preparing is not a stall": (PREPARING, replace(CALM, quiet_since_ns=NOW - 200 * S), ()),
    "silence from before the phase is not a stall": (RUNNING, replace(CALM, quiet_since_ns=0), ()),
    "no limit is judged right after a pause": (
        replace(RUNNING, since_ns=NOW - 3600 * S),
        replace(CALM, gap_ns=21 * S),
        (),
    ),
    "cancelled: ask": (stopping(RUNNING, R.CANCELLED), CALM, (TellCancel(),)),
    "cancelled: wait": (replace(stopping(RUNNING, R.CANCELLED, 9 * S), told_cancel=True), CALM, ()),
    "cancelled: no longer": (
        replace(stopping(RUNNING, R.CANCELLED, 10 * S), told_cancel=True),
        CALM,
        (Terminate(),),
    ),
    "cancelled: the grace ends with the lease": (
        replace(stopping(RUNNING, R.CANCELLED, S), told_cancel=True, deadline_ns=NOW),
        CALM,
        (Terminate(),),
    ),
    "stopped: terminate": (stopping(RUNNING, R.RUN_TIMEOUT), CALM, (Terminate(),)),
    "stopped: the lease goes on": (
        replace(stopping(RUNNING, R.RUN_TIMEOUT), renew_at_ns=NOW),
        CALM,
        (Renew(), Terminate()),
    ),
    "terminated: wait": (
        replace(stopping(RUNNING, R.RUN_TIMEOUT), terminated_ns=NOW - 4 * S),
        CALM,
        (),
    ),
    "terminated: kill": (
        replace(stopping(RUNNING, R.RUN_TIMEOUT), terminated_ns=NOW - 5 * S),
        CALM,
        (Kill(),),
    ),
    "fenced: terminate, and never renew": (
        replace(stopping(RUNNING, R.LEASE_EXPIRED), renew_at_ns=NOW),
        CALM,
        (Terminate(),),
    ),
    "fenced: kill within the margin": (
        replace(stopping(RUNNING, R.LEASE_EXPIRED), terminated_ns=NOW - 1 * S),
        CALM,
        (Kill(),),
    ),
    "any stop is a fence once the lease is over": (
        replace(stopping(RUNNING, R.RUN_TIMEOUT), terminated_ns=NOW - 1 * S, deadline_ns=NOW),
        CALM,
        (Kill(),),
    ),
    "killed: wait": (
        replace(stopping(RUNNING, R.RUN_TIMEOUT), terminated_ns=NOW - 9 * S, killed_ns=NOW - S),
        CALM,
        (),
    ),
    "killed: no signal helps": (
        replace(stopping(RUNNING, R.RUN_TIMEOUT), terminated_ns=0, killed_ns=NOW - UNKILLABLE_NS),
        CALM,
        (Collect(),),
    ),
    "killed: go on without it": (
        replace(stopping(RUNNING, R.RUN_TIMEOUT), terminated_ns=0, killed_ns=NOW - UNKILLABLE_NS),
        replace(CALM, collected=True),
        (EnterPhase(HeldPhase.UPLOADING),),
    ),
    "stopped before it was started": (
        stopping(PREPARING, R.CANCELLED),
        replace(CALM, runtime=ABSENT),
        (EnterPhase(HeldPhase.UPLOADING),),
    ),
    "ended: collect": (RUNNING, replace(CALM, runtime=GONE), (Collect(),)),
    "ended while preparing": (PREPARING, replace(CALM, runtime=GONE), (Collect(),)),
    "collected: upload": (
        RUNNING,
        replace(CALM, runtime=GONE, collected=True),
        (EnterPhase(HeldPhase.UPLOADING),),
    ),
    "collected: it ran, however quickly": (
        PREPARING,
        replace(CALM, runtime=GONE, collected=True, ready=True),
        (EnterPhase(HeldPhase.RUNNING),),
    ),
    "collected: it never was ready": (
        PREPARING,
        replace(CALM, runtime=GONE, collected=True),
        (EnterPhase(HeldPhase.UPLOADING),),
    ),
    "ended by itself: a passed deadline is not a reason": (
        replace(RUNNING, deadline_ns=NOW),
        replace(CALM, runtime=GONE, lease_gone=True),
        (Collect(),),
    ),
    "ended while the machine slept": (
        RUNNING,
        replace(CALM, runtime=GONE, slept_ns=SLEEP_LIMIT_NS),
        (Stop(R.HOST_SUSPENDED),),
    ),
    "uploading: conclude first": (UPLOADING, replace(CALM, runtime=GONE), (Conclude(),)),
    "uploading: keep the lease": (
        replace(UPLOADING, renew_at_ns=NOW),
        replace(CALM, runtime=GONE, concluded=True),
        (Renew(),),
    ),
    "uploading: acknowledged": (
        UPLOADING,
        replace(CALM, runtime=GONE, concluded=True, settled=True),
        (Release(),),
    ),
    "uploading: lease gone": (
        UPLOADING,
        replace(CALM, runtime=GONE, concluded=True, lease_gone=True),
        (Release(),),
    ),
    "uploading: deadline": (
        replace(UPLOADING, deadline_ns=NOW),
        replace(CALM, runtime=GONE, concluded=True),
        (Release(),),
    ),
    "uploading: limit": (
        replace(UPLOADING, since_ns=NOW - 300 * S),
        replace(CALM, runtime=GONE, concluded=True),
        (Release(),),
    ),
    "uploading: it was never accepted": (
        replace(UPLOADING, deadline_ns=None),
        replace(CALM, runtime=ABSENT, concluded=True),
        (Release(),),
    ),
    "ended": (replace(RUNNING, phase=HeldPhase.ENDED), replace(CALM, lease_gone=True), ()),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_decided(name: str) -> None:
    held, facts, expected = CASES[name]
    assert decide(held, facts) == expected


def test_every_instruction_is_in_the_table() -> None:
    seen = {type(instruction) for _, _, expected in CASES.values() for instruction in expected}
    assert seen == set(Instruction.__args__)


def renew_answer(ttl_s: float, margin_s: float, interval_s: float) -> RenewAnswer:
    return RenewAnswer(
        ttl_s=ttl_s,
        renew_interval_s=interval_s,
        margin_s=margin_s,
        directive="continue",
    )


def test_the_deadline_counts_from_the_sending() -> None:
    assert deadline_ns(5 * S, 60.0, 3.0) == 62 * S
    renewed = RUNNING.renewed(renew_answer(60, 3, 20), NOW - 7 * S, jitter=0.0)
    assert renewed.deadline_ns == NOW + 50 * S
    assert renewed.renew_at_ns == NOW + 13 * S


@given(st.floats(0, 1, exclude_max=True))
def test_jitter_only_makes_renewals_earlier(jitter: float) -> None:
    renewed = RUNNING.renewed(renew_answer(60, 3, 20), NOW, jitter)
    assert NOW + 16 * S <= renewed.renew_at_ns <= NOW + 20 * S


def test_a_fresh_claim_has_no_deadline_of_its_own() -> None:
    """The answer to a claim may be a repetition, so its age is unknown; only a renewal's is known."""
    lease = Lease(
        lease_id="lea_01ARZ3NDEKTSV4RRFFQ69G5FAV",
        attempt_id="att_01ARZ3NDEKTSV4RRFFQ69G5FAV",
        device_id="host",
        fence=1,
        ttl_s=60,
        renew_interval_s=20,
        margin_s=3,
        spec=attempt_spec(),
    )
    held = claimed(lease, DURATIONS, NOW)
    assert (held.phase, held.deadline_ns, held.accept_until_ns) == (HeldPhase.ACCEPTING, None, NOW + 60 * S)


facts_after_the_deadline = st.builds(
    Facts,
    now_ns=st.integers(NOW, NOW + 100 * S),
    gap_ns=st.integers(0, 100 * S),
    slept_ns=st.integers(0, 10 * S),
    runtime=st.just(ALIVE),
    quiet_since_ns=st.integers(0, NOW),
    ready=st.booleans(),
    cancel=st.booleans(),
    lease_gone=st.booleans(),
    renewing=st.booleans(),
    spool_full=st.booleans(),
    events_invalid=st.booleans(),
    shutdown=st.booleans(),
)


@given(facts_after_the_deadline, st.sampled_from([RUNNING, PREPARING]))
def test_past_the_deadline_a_living_runtime_is_always_fenced(facts: Facts, held: Held) -> None:
    (stop,) = decide(replace(held, deadline_ns=NOW), facts)
    assert isinstance(stop, Stop)
    assert stop.reason in FENCE_REASONS


@given(facts_after_the_deadline, st.sampled_from(sorted(FailureReason)))
def test_past_the_deadline_a_stopped_runtime_is_dead_within_the_fence_grace(
    facts: Facts, reason: FailureReason
) -> None:
    held = replace(RUNNING.stopping(reason, NOW - S), deadline_ns=NOW, told_cancel=True)
    assert Terminate() in decide(held, facts)
    held = replace(held, terminated_ns=facts.now_ns - DURATIONS.fence_grace_ns)
    assert Kill() in decide(held, facts)
