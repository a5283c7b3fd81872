"""What a worker tells becomes facts for the verdict and events for the agent's stream."""

from contract.events import BatterySampled, MemorySampled, ThermalSampled, TransportLost
from device_agent.ios_worker.protocol import (
    Conditions,
    ConditionsSeen,
    FootprintSeen,
    LogLineSeen,
    ProcessAbsent,
    ProcessExited,
    WatchEnded,
    WorkerErrorKind,
)
from device_agent.targets.ios import app_observations as module
from device_agent.targets.ios.app_observations import SYSMONTAP, AppObservations
from device_agent.targets.ios.evidence import ExitSeen

WARM = Conditions(
    free_bytes=1,
    battery_percent=80.0,
    charging=True,
    temperature_celsius=31.5,
    low_power_mode=False,
    thermal="fair",
)


def footprint(pid: int) -> FootprintSeen:
    return FootprintSeen(pid=pid, footprint_bytes=1000, cpu_percent=None)


def test_only_our_process_counts() -> None:
    seen = AppObservations(7)
    for notice in (
        ProcessExited(pid=8, exit_code=0, signal=None),
        ProcessAbsent(pid=8),
        footprint(8),
    ):
        seen.take(notice)
    assert (seen.exit, seen.absent, seen.observations()) == (None, 0, ())


def test_an_exit_and_two_absences_are_kept_and_a_sight_forgets_the_absence() -> None:
    seen = AppObservations(7)
    seen.take(ProcessAbsent(pid=7))
    seen.take(ProcessAbsent(pid=7))
    assert seen.absent == 2
    seen.take(footprint(7))
    assert seen.absent == 0
    seen.take(ProcessExited(pid=7, exit_code=None, signal=9))
    assert seen.exit == ExitSeen(None, 9)


def test_samples_become_events_of_the_agent_s_stream_each_once() -> None:
    seen = AppObservations(7)
    seen.take(footprint(7))
    seen.take(ConditionsSeen(conditions=WARM))
    seen.transport_lost("x" * 5000)
    memory, battery, thermal, lost = (make(seq) for seq, make in enumerate(seen.observations(), 1))
    assert isinstance(memory, MemorySampled)
    assert (memory.seq, memory.method, memory.trial) == (1, SYSMONTAP, None)
    assert isinstance(battery, BatterySampled)
    assert battery.temperature_celsius == 31.5
    assert isinstance(thermal, ThermalSampled)
    assert thermal.state == "fair"
    assert isinstance(lost, TransportLost)
    assert len(lost.detail) == 1000
    assert seen.observations() == ()


def test_what_a_device_does_not_tell_is_no_event() -> None:
    seen = AppObservations(7)
    silent = WARM.model_copy(update={"battery_percent": None, "thermal": "unknown"})
    seen.take(ConditionsSeen(conditions=silent))
    assert seen.observations() == ()


def test_observations_are_bounded_and_their_loss_is_counted(monkeypatch) -> None:
    monkeypatch.setattr(module, "_MAX_OBSERVATIONS", 3)
    seen = AppObservations(7)
    for _ in range(5):
        seen.take(footprint(7))
    assert (len(seen.observations()), seen.dropped) == (3, 2)


def test_log_lines_and_a_broken_watch_are_facts() -> None:
    seen = AppObservations(7)
    seen.take(LogLineSeen(pid=0, process_name="kernel", message="memorystatus: killing 7", clock_s=None))
    broken = WatchEnded(part="footprint", kind=WorkerErrorKind.DISCONNECTED, detail="x")
    seen.take(broken)
    assert [line.message for line in seen.lines] == ["memorystatus: killing 7"]
    assert seen.broken == broken
