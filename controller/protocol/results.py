"""Results: the agent's last word on an attempt, accepted once everything that it names is stored."""

from typing import Final

from contract.agent_api import ResultAnswer, ResultRequest
from contract.events import Stream
from contract.states import AttemptState, JobOutcome, JobState, RunState
from controller.db.attempts import AttemptRepository
from controller.db.devices import DeviceRepository
from controller.db.events import ArtifactRepository
from controller.db.models import AttemptRow, DeviceRow, JobRow
from controller.db.runs import JobRepository, RunRepository
from controller.db.unit_of_work import UnitOfWork
from controller.errors import (
    ArtifactsMissingError,
    AttemptNotFoundError,
    BadRequestError,
    EventsMissingError,
    FencedError,
)
from controller.protocol.endings import end_attempt, expire_overdue, settle_run
from controller.protocol.enrolment import touch_agent
from controller.protocol.transitions import move_attempt, move_job
from controller.states.work import LIVE_ATTEMPT_STATES, AttemptCause, JobCause

_CAUSE_OF_OUTCOME: Final = {
    "succeeded": AttemptCause.RESULT_SUCCEEDED,
    "failed": AttemptCause.RESULT_FAILED,
    "errored": AttemptCause.RESULT_ERRORED,
    "refused": AttemptCause.RESULT_REFUSED,
    "cancelled": AttemptCause.RESULT_CANCELLED,
    "timed_out": AttemptCause.RESULT_TIMED_OUT,
}
_SALVAGE: Final = {
    "succeeded": (AttemptCause.SALVAGED_SUCCEEDED, JobCause.SALVAGED_SUCCEEDED),
    "failed": (AttemptCause.SALVAGED_FAILED, JobCause.SALVAGED_FAILED),
}


def finish(work: UnitOfWork, device_agent_id: str, attempt_id: str, request: ResultRequest) -> ResultAnswer:
    """Accept a result, or say what is missing; the same call again gets the same answer.

    Raises AttemptNotFoundError, FencedError, EventsMissingError, ArtifactsMissingError. An attempt that
    the controller has ended meanwhile keeps its state, which the answer names.
    """
    touch_agent(work, device_agent_id)
    expire_overdue(work)
    attempt = AttemptRepository(work.session).get_locked(attempt_id)
    if attempt.device_agent_id != device_agent_id:
        raise AttemptNotFoundError(attempt_id)
    if request.fence != attempt.fence:
        raise FencedError(request.fence, attempt.fence)
    if attempt.state in LIVE_ATTEMPT_STATES:
        _require_complete(work, attempt, request)
        end_attempt(work, attempt, _CAUSE_OF_OUTCOME[request.outcome], request)
        _keep(attempt, request)
    elif attempt.state is AttemptState.LOST:
        _require_complete(work, attempt, request)
        _finish_late(work, attempt, request)
    return ResultAnswer(attempt_id=attempt_id, state=attempt.state.value, salvaged=attempt.salvaged)


def _keep(attempt: AttemptRow, request: ResultRequest) -> None:
    attempt.last_seq = {stream.value: last for stream, last in request.last_seq.items()}
    if attempt.state is AttemptState.SUCCEEDED:
        attempt.trials_done = attempt.trials_total


def _require_complete(work: UnitOfWork, attempt: AttemptRow, request: ResultRequest) -> None:
    stored = AttemptRepository(work.session).next_seqs([attempt.attempt_id])[attempt.attempt_id]
    if request.outcome == "succeeded" and not request.last_seq.get(Stream.CONTROL):
        raise BadRequestError("/last_seq/control", "a success without events cannot be; name the last one")
    for stream, last in sorted(request.last_seq.items()):
        next_seq = stored.get(stream.value, 1)
        if next_seq <= last:
            raise EventsMissingError(stream.value, next_seq)
    stored_files = ArtifactRepository(work.session).of([attempt.attempt_id])
    have = {artifact.name: artifact.sha256 for artifact in stored_files}
    missing = tuple(ref.name for ref in request.artifacts if have.get(ref.name) != ref.sha256)
    if missing:
        raise ArtifactsMissingError(missing)


def _finish_late(work: UnitOfWork, attempt: AttemptRow, request: ResultRequest) -> None:
    """The lease is gone, but what was measured may still be the only try that counts."""
    # In the order in which everything else locks: run last.
    device = DeviceRepository(work.session).get_locked(attempt.device_id)
    job = JobRepository(work.session).get_locked(attempt.job_id)
    run = RunRepository(work.session).get_locked(job.run_id)
    causes = _SALVAGE.get(request.outcome)
    if causes is None or run.state is RunState.COMPLETED or not _still_counts(attempt, job, device):
        move_attempt(work, attempt, AttemptCause.SUPERSEDED)
        return
    move_attempt(work, attempt, causes[0])
    attempt.salvaged = True
    attempt.reason, attempt.detail = request.reason, request.detail
    _keep(attempt, request)
    move_job(work, job, causes[1])
    settle_run(work, job.run_id)


def _still_counts(attempt: AttemptRow, job: JobRow, device: DeviceRow) -> bool:
    """Nothing newer was granted, for the job or for the device, and the job has no verdict of its own."""
    newest = attempt.number == job.attempts_used and attempt.fence == device.fence
    failed_by_farm = job.state is JobState.DONE and job.outcome is JobOutcome.INFRA_FAILED
    return newest and (job.state is JobState.QUEUED or failed_by_farm)
