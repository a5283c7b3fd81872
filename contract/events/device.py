"""Events of the device: memory, heat, battery, kills; and of the agent beside it."""

from typing import Annotated, Literal

from pydantic import Field

from contract.events.envelope import Count, EventEnvelope, Stream, Trial
from contract.failures import FailureReason
from contract.run_end import RunEnd

ThermalState = Literal["nominal", "fair", "serious", "critical", "unknown"]
MemoryPressure = Literal["warning", "critical"]


class MemorySampled(EventEnvelope):
    """Footprint as the system charges it. method names what was read, e.g. `phys_footprint`
    (iOS) or `linux_anonymous` (anonymous, shared and swapped pages of the process)."""

    type: Literal["memory_sampled"] = "memory_sampled"
    trial: Trial | None
    footprint_bytes: Count
    resident_bytes: Count | None = None
    limit_bytes: Count | None = None
    available_bytes: Count | None = None
    method: str


class KvSampled(EventEnvelope):
    """The KV pool after a step. used: referenced by a sequence; cached: kept for reuse, evictable."""

    type: Literal["kv_sampled"] = "kv_sampled"
    trial: Trial
    blocks_total: Count
    blocks_used: Count
    blocks_cached: Count
    blocks_free: Count
    sequences_running: Count
    sequences_waiting: Count


class ThermalSampled(EventEnvelope):
    """Thermal state as the system reports it; coarser than the chip's own throttling.

    trial: the one that ran, set by the device agent, whose clock places nothing; the runtime leaves it out.
    """

    type: Literal["thermal_sampled"] = "thermal_sampled"
    state: ThermalState
    trial: Trial | None = None


class BatterySampled(EventEnvelope):
    """Battery and low-power mode. trial: as in thermal_sampled."""

    type: Literal["battery_sampled"] = "battery_sampled"
    level_percent: Annotated[float, Field(ge=0, le=100)]
    charging: bool
    low_power_mode: bool | None = None
    temperature_celsius: float | None = None
    trial: Trial | None = None


class MemoryWarned(EventEnvelope):
    """The system warned the app that memory is short."""

    type: Literal["memory_warned"] = "memory_warned"
    level: MemoryPressure


class PhaseChanged(EventEnvelope):
    """The agent moved the attempt on."""

    type: Literal["phase_changed"] = "phase_changed"
    phase: Literal["preparing", "running", "uploading"]


class RuntimeStarted(EventEnvelope):
    """The agent started the runtime's process."""

    type: Literal["runtime_started"] = "runtime_started"
    pid: Count


class RuntimeExited(EventEnvelope):
    """The runtime's process ended; code and signal are None when it was found gone after a restart of the
    device agent. end: how, as far as its device tells; None where the exit status says it all, or where the
    device agent ended it for a reason of its own."""

    type: Literal["runtime_exited"] = "runtime_exited"
    exit_code: int | None
    signal: int | None
    end: RunEnd | None = None


class DeviceAgentRestarted(EventEnvelope):
    """The agent came back in the middle of the attempt; runtime_alive says what it found."""

    type: Literal["device_agent_restarted"] = "device_agent_restarted"
    runtime_alive: bool


class TransportLost(EventEnvelope):
    """The live connection to the runtime was cut; its file completes the stream."""

    type: Literal["transport_lost"] = "transport_lost"
    detail: str


class SpoolDropped(EventEnvelope):
    """The agent's disk was full: events of a stream were not kept. Every loss is counted."""

    type: Literal["spool_dropped"] = "spool_dropped"
    stream: Stream
    count: Annotated[int, Field(ge=1)]


class EventRefused(EventEnvelope):
    """A line of the runtime did not parse; it was kept aside and counted."""

    type: Literal["event_refused"] = "event_refused"
    reason: FailureReason
    detail: str


class HostSampled(EventEnvelope):
    """The agent's own machine: processor use of others, free disk, own descriptors."""

    type: Literal["host_sampled"] = "host_sampled"
    others_cpu_percent: float | None
    disk_free_bytes: Count
    open_files: Count
