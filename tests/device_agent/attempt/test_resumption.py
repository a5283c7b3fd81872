"""Where an attempt stands after a restart of the agent."""

from pathlib import Path

import pytest

from contract.events import PhaseChanged
from contract.events.envelope import Stream
from contract.failures import FailureReason
from contract.runtime_link import LeaseFile
from device_agent.attempt.lease import Held, HeldPhase
from device_agent.attempt.resumption import open_spool, resumed_lease
from device_agent.collect.spool import Spool
from device_agent.floor.attempt_folder import AttemptFolder
from device_agent.floor.clock import monotonic_ns
from device_agent.floor.settings import AgentSettings
from tests.device_agent.floor.test_attempt_folder import grant

S = 1_000_000_000


class Left:
    """A folder as a killed agent left it."""

    def __init__(self, path: Path) -> None:
        self.settings = AgentSettings(home=path)
        self.folder = AttemptFolder.create(path, grant())
        self.spool: Spool = open_spool(self.folder, self.settings)

    def held(self) -> Held:
        return resumed_lease(self.folder, self.spool, self.settings)


@pytest.fixture
def left(tmp_path: Path) -> Left:
    return Left(tmp_path)


def test_the_agent_s_stream_is_opened_once(left: Left) -> None:
    again = open_spool(left.folder, left.settings)
    assert again.last_seqs() == {Stream.DEVICE_AGENT: 1}


def test_a_granted_lease_is_still_to_be_accepted(left: Left) -> None:
    held = left.held()
    assert (held.phase, held.deadline_ns) == (HeldPhase.ACCEPTING, None)


def test_the_deadline_on_disk_stays_in_force_and_the_phase_goes_on_from_its_begin(left: Left) -> None:
    now_ns = monotonic_ns()
    left.folder.write_lease_file(LeaseFile(deadline_mono_ns=now_ns + 30 * S))
    left.spool.record(lambda seq: PhaseChanged(seq=seq, t_mono_ns=now_ns - 9 * S, phase="preparing"))
    left.spool.record(lambda seq: PhaseChanged(seq=seq, t_mono_ns=now_ns - 5 * S, phase="running"))
    held = left.held()
    assert (held.phase, held.since_ns) == (HeldPhase.RUNNING, now_ns - 5 * S)
    assert held.deadline_ns == now_ns + 30 * S
    assert held.stop is None


def test_a_deadline_from_before_a_reboot_is_void(left: Left) -> None:
    left.folder.write_lease_file(LeaseFile(deadline_mono_ns=monotonic_ns() + 1000 * S))
    deadline_ns = left.held().deadline_ns
    assert deadline_ns is not None
    assert deadline_ns <= monotonic_ns()


def test_a_cancellation_is_not_forgotten(left: Left) -> None:
    left.folder.write_lease_file(LeaseFile(deadline_mono_ns=monotonic_ns(), directive="cancel"))
    held = left.held()
    assert (held.stop, held.told_cancel) == (FailureReason.CANCELLED, True)
