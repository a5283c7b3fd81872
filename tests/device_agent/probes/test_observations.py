"""What a target saw: kept in order, heat and battery in the trial that runs, losses told."""

import asyncio
from pathlib import Path

from contract.events import BatterySampled, EventEnvelope, MemorySampled, ThermalSampled
from contract.events.envelope import Stream
from device_agent.collect.spool import Spool
from device_agent.probes.observations import record_observations
from device_agent.targets.port import Observation


class Seen:
    """A process of which this was seen; told once."""

    def __init__(self, *seen: Observation) -> None:
        self._seen = seen

    def observations(self) -> tuple[Observation, ...]:
        seen, self._seen = self._seen, ()
        return seen


def thermal(seq: int) -> EventEnvelope:
    """The device is warm."""
    return ThermalSampled(seq=seq, t_mono_ns=1, state="fair")


def battery(seq: int) -> EventEnvelope:
    """Half full."""
    return BatterySampled(seq=seq, t_mono_ns=2, level_percent=50, charging=True)


def memory(seq: int) -> EventEnvelope:
    """Seen from outside."""
    return MemorySampled(seq=seq, t_mono_ns=3, trial=None, footprint_bytes=5, method="sysmontap")


def recorded(folder: Path, trial: int | None) -> list[EventEnvelope]:
    """The agent's stream after one look."""
    spool = Spool(folder / "spool.sqlite", 1 << 30)
    process = Seen(thermal, battery, memory)
    assert asyncio.run(record_observations(process, spool, trial))
    assert asyncio.run(record_observations(process, spool, trial))
    return spool.events(Stream.DEVICE_AGENT, "thermal_sampled", "battery_sampled", "memory_sampled")


def test_heat_and_battery_name_the_trial_that_runs_and_memory_does_not(tmp_path: Path) -> None:
    assert [(event.type, event.trial) for event in recorded(tmp_path, 3)] == [
        ("thermal_sampled", 3),
        ("battery_sampled", 3),
        ("memory_sampled", None),
    ]


def test_between_two_trials_nothing_is_named(tmp_path: Path) -> None:
    assert {event.trial for event in recorded(tmp_path, None)} == {None}


def test_without_a_process_nothing_is_recorded(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.sqlite", 1 << 30)
    assert asyncio.run(record_observations(None, spool, 1))
    assert spool.last_seqs() == {}
