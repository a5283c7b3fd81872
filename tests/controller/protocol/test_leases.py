"""Renewals, results, what follows from them, and what a late result may still do."""

from itertools import product

import pytest

from contract.events import Stream
from contract.failures import FAILURES, FailureReason
from contract.rest import DeviceSelector
from contract.states import AttemptState, DeviceState, JobOutcome, JobState, RunOutcome, RunState
from controller.errors import (
    ArtifactsMissingError,
    AttemptNotFoundError,
    BadRequestError,
    EventsMissingError,
    FencedError,
    InvalidTransitionError,
    LeaseGoneError,
    RunNotFoundError,
)
from controller.protocol.endings import conclude_run, job_cause
from controller.protocol.operators import cancel_job, cancel_run
from controller.states.work import JOB_MACHINE, JobCause
from tests.controller.farm import Farm, control_lines, fixed_id


@pytest.fixture
def farm() -> Farm:
    return Farm()


@pytest.fixture
def agent(farm: Farm) -> str:
    device_agent_id = farm.add_agent()
    farm.hello(device_agent_id, "d1", "d2")
    return device_agent_id


def test_a_renewal_keeps_the_lease_for_another_ttl(farm: Farm, agent: str) -> None:
    farm.add_job()
    lease = farm.granted(agent, "d1")
    for _ in range(5):
        farm.pass_time(29 if farm.attempt(lease).state is AttemptState.LEASED else 59)
        assert farm.renew(agent, lease).directive == "continue"
    farm.pass_time(60)
    with pytest.raises(LeaseGoneError):
        farm.renew(agent, lease)


def test_phases_go_forward_only_and_may_be_skipped(farm: Farm, agent: str) -> None:
    job_id = farm.add_job()
    lease = farm.granted(agent, "d1")
    farm.renew(agent, lease, "preparing")
    assert farm.attempt(lease).state is AttemptState.PREPARING
    assert farm.job(job_id).state is JobState.ASSIGNED
    farm.renew(agent, lease, "uploading", trials_done=2)
    farm.renew(agent, lease, "running", trials_done=1)
    attempt = farm.attempt(lease)
    assert (attempt.state, attempt.trials_done) == (AttemptState.UPLOADING, 2)
    assert farm.job(job_id).state is JobState.RUNNING


def test_a_renewal_with_another_fence_or_by_another_agent_is_refused(farm: Farm, agent: str) -> None:
    farm.add_job()
    lease = farm.granted(agent, "d1")
    with pytest.raises(FencedError):
        farm.renew(agent, lease, fence=lease.fence + 1)
    with pytest.raises(LeaseGoneError):
        farm.renew(farm.add_agent(), lease)


def test_a_result_needs_every_event_that_it_names(farm: Farm, agent: str) -> None:
    job_id = farm.add_job()
    lease = farm.granted(agent, "d1")
    farm.upload(agent, lease, control_lines(lease.attempt_id, 3))
    last_seq = {Stream.CONTROL: 5, Stream.DEVICE_AGENT: 0}
    with pytest.raises(EventsMissingError) as missing:
        farm.finish(agent, lease, last_seq=last_seq)
    assert (missing.value.stream, missing.value.next_seq) == ("control", 4)
    assert farm.job(job_id).state is JobState.ASSIGNED
    farm.upload(agent, lease, control_lines(lease.attempt_id, 2, first_seq=4), first_seq=4)
    assert farm.finish(agent, lease, last_seq=last_seq).state == "succeeded"


def test_a_success_without_events_cannot_be(farm: Farm, agent: str) -> None:
    farm.add_job()
    lease = farm.granted(agent, "d1")
    with pytest.raises(BadRequestError, match="without events") as refused:
        farm.finish(agent, lease, last_seq={})
    assert refused.value.pointer == "/last_seq/control"


def test_a_result_needs_every_artifact_that_it_names(farm: Farm, agent: str) -> None:
    farm.add_job()
    lease = farm.granted(agent, "d1")
    farm.upload(agent, lease, control_lines(lease.attempt_id, 1))
    with pytest.raises(ArtifactsMissingError) as missing:
        farm.finish(agent, lease, artifacts=[{"name": "crash", "sha256": "0" * 64, "size_bytes": 1}])
    assert missing.value.missing == ("crash",)


def test_a_result_sent_twice_is_answered_the_same_and_counted_once(farm: Farm, agent: str) -> None:
    run_id, (job_id,) = farm.add_run(DeviceSelector())
    lease = farm.granted(agent, "d1")
    first = farm.succeed(agent, lease)
    farm.pass_time(300)
    assert farm.finish(agent, lease) == first
    job = farm.job(job_id)
    assert (job.state, job.outcome, job.attempts_used) == (JobState.DONE, JobOutcome.SUCCEEDED, 1)
    assert farm.run(run_id).state is RunState.FINISHING


def test_a_result_of_another_agent_or_fence_is_refused(farm: Farm, agent: str) -> None:
    farm.add_job()
    lease = farm.granted(agent, "d1")
    with pytest.raises(AttemptNotFoundError):
        farm.finish(farm.add_agent(), lease, "failed")
    with pytest.raises(FencedError):
        farm.finish(agent, lease, "failed", fence=lease.fence + 1)


@pytest.mark.parametrize(
    ("outcome", "reason", "job_state", "job_outcome", "device_state"),
    [
        ("failed", FailureReason.JETSAM, JobState.DONE, JobOutcome.FAILED, DeviceState.CLEANING),
        ("timed_out", None, JobState.DONE, JobOutcome.TIMED_OUT, DeviceState.CLEANING),
        ("errored", FailureReason.BAD_SPEC, JobState.DONE, JobOutcome.FAILED, DeviceState.CLEANING),
        ("errored", FailureReason.DEVICE_DISCONNECTED, JobState.QUEUED, None, DeviceState.RECOVERING),
        ("errored", FailureReason.AGENT_RESTARTED, JobState.QUEUED, None, DeviceState.CLEANING),
        ("errored", None, JobState.QUEUED, None, DeviceState.CLEANING),
        ("refused", FailureReason.MODEL_MISSING, JobState.QUEUED, None, DeviceState.CLEANING),
        ("cancelled", None, JobState.QUEUED, None, DeviceState.CLEANING),
    ],
)
def test_what_an_end_means_for_job_and_device(  # noqa: PLR0913 - the columns of its table
    farm: Farm,
    agent: str,
    outcome: str,
    reason: FailureReason | None,
    job_state: JobState,
    job_outcome: JobOutcome | None,
    device_state: DeviceState,
) -> None:
    job_id = farm.add_job()
    lease = farm.granted(agent, "d1")
    farm.finish(agent, lease, outcome, reason=reason)
    job = farm.job(job_id)
    assert (job.state, job.outcome) == (job_state, job_outcome)
    assert farm.device("d1").state is device_state


def test_a_retry_goes_elsewhere_while_there_is_an_elsewhere(farm: Farm, agent: str) -> None:
    job_id = farm.add_job(max_attempts=4)
    farm.fail(agent, farm.granted(agent, "d1"), FailureReason.STORAGE_HOST)
    assert farm.job(job_id).excluded_devices == ["d1"]
    assert farm.claim(agent, "d1") is None
    farm.fail(agent, farm.granted(agent, "d2"), FailureReason.STORAGE_HOST)
    # d2 is the only one left: the job stays there, but later.
    job = farm.job(job_id)
    assert job.excluded_devices == ["d1"]
    assert job.not_before is not None
    assert farm.claim(agent, "d1", "d2") is None
    farm.pass_time((job.not_before - farm.now).total_seconds())
    assert farm.granted(agent, "d1", "d2").device_id == "d2"


def test_the_back_off_on_the_only_device_grows_and_is_bounded(farm: Farm) -> None:
    device_agent_id = farm.add_agent()
    farm.hello(device_agent_id, "only")
    job_id = farm.add_job(max_attempts=10, queue_deadline=farm.now.replace(year=2027))
    waits = []
    for _ in range(9):
        farm.fail(device_agent_id, farm.granted(device_agent_id, "only"), FailureReason.STORAGE_HOST)
        not_before = farm.job(job_id).not_before
        assert not_before is not None
        waits.append((not_before - farm.now).total_seconds())
        farm.pass_time(waits[-1])
        farm.hello(device_agent_id, "only")
    assert waits == [5, 10, 20, 40, 80, 160, 300, 300, 300]


def test_tries_are_counted_and_their_end_is_an_infrastructure_failure(farm: Farm, agent: str) -> None:
    run_id, (job_id,) = farm.add_run(DeviceSelector(), max_attempts=2)
    farm.fail(agent, farm.granted(agent, "d1"), FailureReason.STORAGE_HOST)
    farm.fail(agent, farm.granted(agent, "d2"), FailureReason.STORAGE_HOST)
    job = farm.job(job_id)
    assert (job.state, job.outcome, job.attempts_used) == (JobState.DONE, JobOutcome.INFRA_FAILED, 2)
    assert farm.run(run_id).state is RunState.FINISHING


def test_for_every_end_of_every_attempt_the_job_knows_what_to_do() -> None:
    ended = [state for state in AttemptState if state not in {AttemptState.ORPHANED}]
    for state, reason, left in product(ended[4:], [None, *FailureReason], (0, 1)):
        for job_state in (JobState.ASSIGNED, JobState.RUNNING, JobState.CANCELLING):
            cause = job_cause(job_state, state, reason, left)
            assert JOB_MACHINE.allows(job_state, cause)
            if cause is JobCause.REQUEUED:
                assert left
                assert reason is None or FAILURES[reason].retryable or state is not AttemptState.ERRORED


def test_a_device_that_fails_three_times_in_a_row_is_quarantined(farm: Farm) -> None:
    device_agent_id = farm.add_agent()
    farm.hello(device_agent_id, "only")
    farm.add_job(max_attempts=5)
    for _ in range(3):
        farm.pass_time(301)
        farm.hello(device_agent_id, "only")
        farm.fail(device_agent_id, farm.granted(device_agent_id, "only"), FailureReason.TUNNEL_LOST)
    device = farm.device("only")
    assert (device.state, device.reasons) == (DeviceState.QUARANTINED, ["tunnel_lost"])
    farm.hello(device_agent_id, "only")
    assert farm.device("only").reasons == ["tunnel_lost"]


# --- cancelling


def test_a_waiting_job_is_cancelled_at_once_and_its_run_finishes(farm: Farm) -> None:
    run_id, job_ids = farm.add_run(DeviceSelector(), DeviceSelector())
    with farm.unit_of_work() as work:
        assert cancel_run(work, run_id) == 2
        assert cancel_run(work, run_id) == 0
    assert {farm.job(job_id).outcome for job_id in job_ids} == {JobOutcome.CANCELLED}
    assert farm.run(run_id).state is RunState.FINISHING
    with farm.unit_of_work() as work, pytest.raises(RunNotFoundError):
        cancel_run(work, fixed_id("run", 999))


def test_a_running_job_is_cancelled_through_its_agent_and_keeps_its_data(farm: Farm, agent: str) -> None:
    job_id = farm.add_job()
    lease = farm.granted(agent, "d1")
    farm.renew(agent, lease)
    with farm.unit_of_work() as work:
        assert cancel_job(work, job_id)
        assert not cancel_job(work, job_id)
    assert farm.job(job_id).state is JobState.CANCELLING
    assert farm.upload(agent, lease, control_lines(lease.attempt_id, 2)).directive == "cancel"
    assert farm.renew(agent, lease).directive == "cancel"
    farm.finish(agent, lease, "cancelled", last_seq={Stream.CONTROL: 2})
    job = farm.job(job_id)
    assert (job.state, job.outcome) == (JobState.DONE, JobOutcome.CANCELLED)
    assert farm.attempt(lease).last_seq == {"control": 2}


def test_a_cancelled_job_is_done_even_when_its_agent_never_answers(farm: Farm, agent: str) -> None:
    job_id = farm.add_job()
    farm.granted(agent, "d1")
    with farm.unit_of_work() as work:
        cancel_job(work, job_id)
    farm.pass_time(61)
    farm.sweep()
    assert farm.job(job_id).outcome is JobOutcome.CANCELLED


# --- late results


def lose(farm: Farm, agent: str, **job_fields: int) -> tuple[str, str, object]:
    """A run whose only attempt wrote one event and then lost its lease."""
    run_id, (job_id,) = farm.add_run(DeviceSelector(), **job_fields)
    lease = farm.granted(agent, "d1")
    farm.upload(agent, lease, control_lines(lease.attempt_id, 1))
    farm.pass_time(61)
    farm.sweep()
    assert farm.attempt(lease).state is AttemptState.LOST
    return run_id, job_id, lease


@pytest.mark.parametrize("max_attempts", [1, 3])
def test_a_late_result_is_salvaged_while_nothing_newer_was_granted(
    farm: Farm, agent: str, max_attempts: int
) -> None:
    run_id, job_id, lease = lose(farm, agent, max_attempts=max_attempts)
    answer = farm.finish(agent, lease)
    assert (answer.state, answer.salvaged) == ("succeeded", True)
    assert farm.finish(agent, lease) == answer
    job = farm.job(job_id)
    assert (job.state, job.outcome) == (JobState.DONE, JobOutcome.SUCCEEDED)
    assert farm.run(run_id).state is RunState.FINISHING


def test_a_late_result_still_needs_its_events(farm: Farm, agent: str) -> None:
    _, _, lease = lose(farm, agent)
    with pytest.raises(EventsMissingError):
        farm.finish(agent, lease, last_seq={Stream.CONTROL: 2})
    farm.upload(agent, lease, control_lines(lease.attempt_id, 1, first_seq=2), first_seq=2)
    assert farm.finish(agent, lease, last_seq={Stream.CONTROL: 2}).salvaged


def test_a_late_result_is_orphaned_once_the_job_was_granted_again(farm: Farm, agent: str) -> None:
    _, job_id, lease = lose(farm, agent)
    newer = farm.granted(agent, "d2")
    assert farm.finish(agent, lease).state == "orphaned"
    assert farm.succeed(agent, newer).state == "succeeded"
    assert farm.job(job_id).outcome is JobOutcome.SUCCEEDED


def test_a_late_result_is_orphaned_even_when_the_newer_attempt_was_lost_too(farm: Farm, agent: str) -> None:
    _, job_id, lease = lose(farm, agent)
    farm.granted(agent, "d2")
    farm.pass_time(61)
    farm.sweep()
    assert farm.job(job_id).state is JobState.QUEUED
    assert farm.finish(agent, lease).state == "orphaned"


def test_a_late_result_is_orphaned_once_the_device_was_granted_again(farm: Farm, agent: str) -> None:
    _, job_id, lease = lose(farm, agent)
    farm.pass_time(10)
    farm.hello(agent, "d1", "d2")
    farm.add_run(DeviceSelector(device_id="d1"), priority=9)
    farm.granted(agent, "d1")
    assert farm.finish(agent, lease).state == "orphaned"
    assert farm.job(job_id).state is JobState.QUEUED


def test_a_late_result_never_changes_a_verdict_that_people_have_read(farm: Farm, agent: str) -> None:
    run_id, job_id, lease = lose(farm, agent, max_attempts=1)
    with farm.unit_of_work() as work:
        conclude_run(work, run_id, RunOutcome.INFRA_ERROR, {"exit_code": 4})
    assert farm.finish(agent, lease).state == "orphaned"
    assert farm.job(job_id).outcome is JobOutcome.INFRA_FAILED
    assert farm.run(run_id).outcome is RunOutcome.INFRA_ERROR


@pytest.mark.parametrize("outcome", ["errored", "cancelled", "timed_out", "refused"])
def test_a_late_result_that_is_no_verdict_is_orphaned(farm: Farm, agent: str, outcome: str) -> None:
    _, job_id, lease = lose(farm, agent)
    assert farm.finish(agent, lease, outcome).state == "orphaned"
    assert farm.job(job_id).state is JobState.QUEUED


def test_an_attempt_that_the_controller_ended_keeps_its_state(farm: Farm, agent: str) -> None:
    farm.add_job()
    lease = farm.granted(agent, "d1")
    farm.pass_time(30)
    farm.sweep()
    assert farm.finish(agent, lease, "failed").state == "errored"


def test_a_run_is_concluded_once(farm: Farm, agent: str) -> None:
    run_id, _ = farm.add_run(DeviceSelector())
    with farm.unit_of_work() as work, pytest.raises(InvalidTransitionError):
        conclude_run(work, run_id, RunOutcome.PASSED, {})
    farm.succeed(agent, farm.granted(agent, "d1"))
    with farm.unit_of_work() as work:
        conclude_run(work, run_id, RunOutcome.PASSED, {"exit_code": 0})
    run = farm.run(run_id)
    assert (run.state, run.outcome, run.gate) == (RunState.COMPLETED, RunOutcome.PASSED, {"exit_code": 0})
    with farm.unit_of_work() as work, pytest.raises(InvalidTransitionError):
        conclude_run(work, run_id, RunOutcome.FAILED, {})
