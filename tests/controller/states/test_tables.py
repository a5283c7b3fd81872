"""Every pair of state and cause, in each of the four machines."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from contract.failures import FAILURES
from contract.states import AttemptState, DeviceState, JobState, RunState
from controller.errors import InvalidTransitionError
from controller.states.devices import DEVICE_DEADLINES, DEVICE_MACHINE, DeviceCause
from controller.states.diagram import pages, write
from controller.states.machine import Machine
from controller.states.work import (
    ATTEMPT_DEADLINES,
    ATTEMPT_MACHINE,
    JOB_MACHINE,
    LIVE_ATTEMPT_STATES,
    OUTCOME_OF_CAUSE,
    REASON_OF_CAUSE,
    RUN_MACHINE,
    AttemptCause,
)
from tests.house.repository import ROOT

MACHINES: list[Machine[Any, Any]] = [RUN_MACHINE, JOB_MACHINE, ATTEMPT_MACHINE, DEVICE_MACHINE]


def causes_of(machine: Machine[Any, Any]) -> list[Any]:
    """Every cause that the machine's enumeration has."""
    return list(type(next(iter(machine.transitions))[1]))


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_every_pair_is_an_edge_or_an_error_that_names_it(machine: Machine[Any, Any]) -> None:
    for state, cause in product(type(machine.initial), causes_of(machine)):
        if machine.allows(state, cause):
            assert machine.next_state(state, cause) == machine.transitions[state, cause]
        else:
            with pytest.raises(InvalidTransitionError) as raised:
                machine.next_state(state, cause)
            error = raised.value
            assert (error.machine, error.state, error.cause) == (machine.name, state.value, cause.value)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_every_state_can_be_reached(machine: Machine[Any, Any]) -> None:
    reached = {machine.initial}
    while more := {t for (s, _), t in machine.transitions.items() if s in reached} - reached:
        reached |= more
    assert reached == set(type(machine.initial))


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_every_cause_has_an_edge_and_a_meaning(machine: Machine[Any, Any]) -> None:
    assert {cause for _, cause in machine.transitions} == set(causes_of(machine)) == set(machine.meanings)


def test_terminal_states_are_derived_from_the_tables() -> None:
    assert RUN_MACHINE.terminal == {RunState.COMPLETED}
    assert JOB_MACHINE.terminal == {JobState.DONE}
    assert DEVICE_MACHINE.terminal == {DeviceState.RETIRED}
    assert ATTEMPT_MACHINE.terminal == set(AttemptState) - LIVE_ATTEMPT_STATES - {AttemptState.LOST}


def test_the_four_live_states_of_an_attempt_are_those_with_a_lease_and_each_has_a_deadline() -> None:
    live = {AttemptState.LEASED, AttemptState.PREPARING, AttemptState.RUNNING, AttemptState.UPLOADING}
    assert live == LIVE_ATTEMPT_STATES == set(ATTEMPT_DEADLINES)


def test_a_deadline_leads_to_a_cause_that_its_state_knows() -> None:
    for state, deadline in ATTEMPT_DEADLINES.items():
        assert ATTEMPT_MACHINE.allows(state, deadline.cause)
        assert deadline.cause in REASON_OF_CAUSE
    for device_state, device_deadline in DEVICE_DEADLINES.items():
        assert DEVICE_MACHINE.allows(device_state, device_deadline.cause)


def test_every_state_of_a_device_has_a_deadline_or_is_known_to_wait_for_something_else() -> None:
    for_a_person_or_the_device = {
        DeviceState.UNKNOWN,
        DeviceState.READY,
        DeviceState.BLOCKED,
        DeviceState.MAINTENANCE,
        DeviceState.ABSENT,
        DeviceState.LOST,
        DeviceState.RETIRED,
    }
    with_a_deadline_of_their_own = {
        DeviceState.LEASED,
        DeviceState.HELD,
        DeviceState.RESERVED,
        DeviceState.QUARANTINED,
    }
    waiting = set(DeviceState) - set(DEVICE_DEADLINES)
    assert waiting == for_a_person_or_the_device | with_a_deadline_of_their_own


def test_every_cause_that_makes_a_job_done_has_an_outcome() -> None:
    finishing = {cause for (_, cause), target in JOB_MACHINE.transitions.items() if target is JobState.DONE}
    assert finishing == set(OUTCOME_OF_CAUSE)


def test_every_end_by_the_controller_has_a_reason_of_the_registry() -> None:
    from_controller = {
        cause
        for (_, cause), target in ATTEMPT_MACHINE.transitions.items()
        if target not in LIVE_ATTEMPT_STATES and not cause.value.startswith(("result_", "salvaged_", "super"))
    }
    assert from_controller <= set(REASON_OF_CAUSE)
    assert set(REASON_OF_CAUSE.values()) <= set(FAILURES)


@pytest.mark.parametrize("state", [DeviceState.QUARANTINED, DeviceState.MAINTENANCE, DeviceState.RETIRED])
def test_a_verdict_on_a_device_survives_a_pulled_cable_and_a_restarted_agent(state: DeviceState) -> None:
    for cause in (DeviceCause.DETACHED, DeviceCause.AGENT_OFFLINE, DeviceCause.MOVED, DeviceCause.ATTACHED):
        assert not DEVICE_MACHINE.allows(state, cause)


def test_only_a_ready_device_can_be_claimed() -> None:
    assert DEVICE_MACHINE.sources(DeviceCause.CLAIMED) == {DeviceState.READY}


def test_a_late_result_can_only_change_a_lost_attempt() -> None:
    for cause in (AttemptCause.SALVAGED_SUCCEEDED, AttemptCause.SALVAGED_FAILED, AttemptCause.SUPERSEDED):
        assert ATTEMPT_MACHINE.sources(cause) == {AttemptState.LOST}


def test_the_drawn_tables_in_docs_are_fresh() -> None:
    for name, text in pages().items():
        assert (ROOT / "docs" / name).read_text() == text, f"docs/{name} is stale: run make docs"


def test_every_edge_is_drawn(tmp_path: Path) -> None:
    write(tmp_path)
    for machine, name in ((DEVICE_MACHINE, "devices.md"), (ATTEMPT_MACHINE, "attempts.md")):
        text = (tmp_path / name).read_text()
        for (source, cause), target in machine.transitions.items():
            assert f"| {source} | `{cause}` | {target} |" in text
