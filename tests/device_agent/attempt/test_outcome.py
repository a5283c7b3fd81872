"""How an attempt ended, as a table."""

import pytest

from contract.events import RuntimeFinished
from contract.failures import FAILURES, FailureReason, Fault
from contract.run_end import RunEnd, outcome_of
from device_agent.attempt.outcome import conclude
from device_agent.collect.intake import Progress
from device_agent.targets.port import ExitStatus

R = FailureReason


def finished(status: str, reason: FailureReason | None = None) -> RuntimeFinished:
    return RuntimeFinished.model_validate({"seq": 9, "t_mono_ns": 0, "status": status, "reason": reason})


def ending(
    status: ExitStatus | None = ExitStatus(0, None),  # noqa: B008 - frozen, so it can be shared
    last: RuntimeFinished | None = None,
    stop: FailureReason | None = None,
    invalid: str = "",
    told: RunEnd | None = None,
) -> RunEnd:
    because = RunEnd.because(stop) if stop is not None else None
    return conclude(status, Progress(0, finished=last, invalid=invalid), because, told, "log")


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
def test_an_attempt_has_one_end(given: RunEnd, outcome: str, reason: FailureReason | None) -> None:
    assert (given.outcome, given.reason) == (outcome, reason)


def test_a_kill_while_the_system_killed_for_memory_is_no_crash() -> None:
    told = RunEnd.because(R.JETSAM, "out of memory")
    assert ending(ExitStatus(None, 9), told=told).reason is R.JETSAM


def test_the_device_explains_a_silence_but_not_what_the_agent_did_for_its_own_reasons() -> None:
    gone = RunEnd.because(R.DEVICE_DISCONNECTED, "detached")
    assert ending(ExitStatus(None, None), stop=R.RUNTIME_STALLED, told=gone).reason is R.DEVICE_DISCONNECTED
    assert ending(ExitStatus(None, None), stop=R.LEASE_EXPIRED, told=gone).reason is R.LEASE_EXPIRED


@pytest.mark.parametrize("reason", FailureReason)
def test_only_the_job_and_the_runtime_can_fail(reason: FailureReason) -> None:
    if outcome_of(reason) == "failed":
        assert FAILURES[reason].fault in (Fault.JOB, Fault.RUNTIME)
    if outcome_of(reason) == "errored":
        assert FAILURES[reason].fault not in (Fault.JOB, Fault.RUNTIME)
