"""How an attempt ended, as a table."""

import pytest

from contract.events import RuntimeFinished
from contract.failures import FAILURES, FailureReason, Fault
from device_agent.attempt.outcome import Ending, conclude, outcome_of
from device_agent.targets.port import Diagnosis, ExitStatus

R = FailureReason


def finished(status: str, reason: FailureReason | None = None) -> RuntimeFinished:
    return RuntimeFinished.model_validate({"seq": 9, "t_mono_ns": 0, "status": status, "reason": reason})


def ending(
    status: ExitStatus | None = ExitStatus(0, None),  # noqa: B008 - frozen, so it can be shared
    last: RuntimeFinished | None = None,
    stop: FailureReason | None = None,
    invalid: str = "",
) -> Ending:
    return Ending(status, last, stop, invalid, diagnosis=None, detail="log")


DONE = finished("completed")
TABLE = [
    (ending(last=DONE), "succeeded", None),
    (ending(last=DONE, stop=R.CANCELLED), "succeeded", None),
    (ending(last=DONE, stop=R.LEASE_EXPIRED), "succeeded", None),
    (ending(last=DONE, stop=R.HOST_SUSPENDED), "errored", R.HOST_SUSPENDED),
    (ending(last=DONE, invalid="line 3"), "failed", R.EVENTS_INVALID),
    (ending(ExitStatus(None, 11), DONE), "succeeded", None),
    (ending(ExitStatus(1, None), finished("failed", R.CONTAMINATION)), "failed", R.CONTAMINATION),
    (ending(ExitStatus(1, None), finished("failed", R.STORAGE_HOST)), "errored", R.STORAGE_HOST),
    (ending(ExitStatus(1, None), finished("failed")), "failed", R.RUNTIME_EXIT),
    (ending(ExitStatus(3, None), finished("cancelled")), "cancelled", R.CANCELLED),
    (ending(ExitStatus(3, None), finished("cancelled"), R.LEASE_EXPIRED), "errored", R.LEASE_EXPIRED),
    (ending(ExitStatus(3, None), finished("cancelled"), R.CANCELLED), "cancelled", R.CANCELLED),
    (ending(ExitStatus(None, 15), stop=R.RUN_TIMEOUT), "timed_out", R.RUN_TIMEOUT),
    (ending(ExitStatus(None, 9), stop=R.RUNTIME_STALLED), "failed", R.RUNTIME_STALLED),
    (ending(ExitStatus(None, 15), stop=R.PREPARE_TIMEOUT), "errored", R.PREPARE_TIMEOUT),
    (ending(ExitStatus(None, 6)), "failed", R.APP_CRASH),
    (ending(ExitStatus(None, None)), "errored", R.AGENT_RESTARTED),
    (ending(ExitStatus(0, None)), "failed", R.RUNTIME_EXIT),
    (ending(ExitStatus(1, None)), "failed", R.RUNTIME_EXIT),
    (ending(ExitStatus(2, None)), "errored", R.AGENT_BUG),
    (ending(ExitStatus(3, None)), "cancelled", R.CANCELLED),
    (ending(ExitStatus(4, None)), "errored", R.LEASE_EXPIRED),
    (ending(None, stop=R.CANCELLED), "cancelled", R.CANCELLED),
    (ending(None), "errored", R.AGENT_BUG),
]


@pytest.mark.parametrize(("given", "outcome", "reason"), TABLE)
def test_an_ending_has_one_verdict(given: Ending, outcome: str, reason: FailureReason | None) -> None:
    verdict = conclude(given)
    assert (verdict.outcome, verdict.reason) == (outcome, reason)


def test_a_kill_while_the_system_killed_for_memory_is_no_crash() -> None:
    killed = Ending(ExitStatus(None, 9), None, None, "", Diagnosis(R.JETSAM, "out of memory"), "")
    assert conclude(killed).reason is R.JETSAM


def test_the_device_explains_a_silence_but_not_what_the_agent_did_for_its_own_reasons() -> None:
    gone = Diagnosis(R.DEVICE_DISCONNECTED, "detached")
    stalled = Ending(ExitStatus(None, None), None, R.RUNTIME_STALLED, "", gone, "")
    fenced = Ending(ExitStatus(None, None), None, R.LEASE_EXPIRED, "", gone, "")
    assert conclude(stalled).reason is R.DEVICE_DISCONNECTED
    assert conclude(fenced).reason is R.LEASE_EXPIRED


@pytest.mark.parametrize("reason", FailureReason)
def test_only_the_job_and_the_runtime_can_fail(reason: FailureReason) -> None:
    if outcome_of(reason) == "failed":
        assert FAILURES[reason].fault in (Fault.JOB, Fault.RUNTIME)
    if outcome_of(reason) == "errored":
        assert FAILURES[reason].fault not in (Fault.JOB, Fault.RUNTIME)
