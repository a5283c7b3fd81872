"""The one writer of states: along the table, with history; anything else changes nothing."""

from itertools import product

import pytest
from sqlalchemy import select

from contract.states import AttemptState, DeviceState, JobState, RunOutcome, RunState
from controller.db.models import AttemptRow, DeviceRow, DeviceTransitionRow, JobRow, OutboxRow, RunRow
from controller.errors import InvalidTransitionError
from controller.protocol.transitions import move_attempt, move_device, move_job, move_run
from controller.states.devices import DEVICE_MACHINE, DeviceCause
from controller.states.work import (
    ATTEMPT_MACHINE,
    JOB_MACHINE,
    OUTCOME_OF_CAUSE,
    AttemptCause,
    JobCause,
    RunCause,
)
from tests.controller.farm import Farm


@pytest.fixture
def farm() -> Farm:
    """One agent, one leased device, one attempt."""
    farm = Farm()
    device_agent_id = farm.add_agent()
    farm.hello(device_agent_id, "d1")
    farm.add_job()
    farm.granted(device_agent_id, "d1")
    return farm


def test_every_pair_of_a_device_moves_the_row_or_leaves_it_alone(farm: Farm) -> None:
    for state, cause in product(DeviceState, DeviceCause):
        with farm.unit_of_work() as work:
            device = work.session.scalars(select(DeviceRow)).one()
            device.state, device.state_since = state, work.now
            if DEVICE_MACHINE.allows(state, cause):
                move_device(work, device, cause)
                assert device.state is DEVICE_MACHINE.transitions[state, cause]
            else:
                with pytest.raises(InvalidTransitionError):
                    move_device(work, device, cause)
                assert device.state is state
                assert not work.session.new
            work.session.rollback()


def test_every_pair_of_an_attempt_moves_the_row_or_leaves_it_alone(farm: Farm) -> None:
    for state, cause in product(AttemptState, AttemptCause):
        with farm.unit_of_work() as work:
            attempt = work.session.scalars(select(AttemptRow)).one()
            attempt.state, attempt.ended_at = state, None
            before = attempt.phase_deadline
            if ATTEMPT_MACHINE.allows(state, cause):
                move_attempt(work, attempt, cause)
                assert attempt.state is ATTEMPT_MACHINE.transitions[state, cause]
                # Live states have a deadline, the others an end.
                assert (attempt.phase_deadline is None) == (attempt.ended_at is not None)
            else:
                with pytest.raises(InvalidTransitionError):
                    move_attempt(work, attempt, cause)
                assert (attempt.state, attempt.phase_deadline, attempt.ended_at) == (state, before, None)
            work.session.rollback()


def test_every_pair_of_a_job_moves_the_row_or_leaves_it_alone(farm: Farm) -> None:
    for state, cause in product(JobState, JobCause):
        with farm.unit_of_work() as work:
            job = work.session.scalars(select(JobRow)).one()
            job.state = state
            if JOB_MACHINE.allows(state, cause):
                move_job(work, job, cause)
                assert job.state is JOB_MACHINE.transitions[state, cause]
                assert job.outcome is (OUTCOME_OF_CAUSE[cause] if job.state is JobState.DONE else None)
            else:
                with pytest.raises(InvalidTransitionError):
                    move_job(work, job, cause)
                assert (job.state, job.outcome) == (state, None)
            work.session.rollback()


def test_a_run_gets_its_outcome_with_its_last_step_only(farm: Farm) -> None:
    with farm.unit_of_work() as work:
        run = work.session.scalars(select(RunRow)).one()
        with pytest.raises(InvalidTransitionError):
            move_run(work, run, RunCause.CONCLUDED, RunOutcome.PASSED)
        move_run(work, run, RunCause.JOBS_DONE)
        assert (run.state, run.outcome, run.completed_at) == (RunState.FINISHING, None, None)
        move_run(work, run, RunCause.CONCLUDED, RunOutcome.PASSED)
        assert (run.state, run.outcome, run.completed_at) == (RunState.COMPLETED, RunOutcome.PASSED, work.now)
        with pytest.raises(InvalidTransitionError):
            move_run(work, run, RunCause.JOBS_DONE)


def test_each_step_of_a_device_is_kept_with_cause_and_time(farm: Farm) -> None:
    with farm.unit_of_work() as work:
        steps = list(work.session.scalars(select(DeviceTransitionRow)))
    assert [(step.from_state, step.cause, step.to_state) for step in steps] == [
        (DeviceState.UNKNOWN, "attached", DeviceState.PREPARING),
        (DeviceState.PREPARING, "prepared", DeviceState.CHECKING),
        (DeviceState.CHECKING, "check_passed", DeviceState.READY),
        (DeviceState.READY, "claimed", DeviceState.LEASED),
    ]
    assert {step.at for step in steps} == {farm.now}


def test_the_end_of_an_attempt_is_announced_in_the_same_transaction(farm: Farm) -> None:
    with farm.unit_of_work() as work:
        attempt = work.session.scalars(select(AttemptRow)).one()
        move_attempt(work, attempt, AttemptCause.LEASE_EXPIRED)
        work.session.flush()
        work.session.rollback()
    with farm.unit_of_work() as work:
        assert work.session.scalars(select(OutboxRow)).all() == []
        attempt = work.session.scalars(select(AttemptRow)).one()
        move_attempt(work, attempt, AttemptCause.LEASE_EXPIRED)
    with farm.unit_of_work() as work:
        told = work.session.scalars(select(OutboxRow)).one()
        assert (told.topic, told.payload) == ("attempt_ended", {"attempt_id": attempt.attempt_id})
