"""Writes `host_sampled` into the agent's stream at an even pace, and tells the losses of a full spool."""

import asyncio

import structlog

from contract.events import HostSampled
from device_agent.collect.spool import Spool
from device_agent.floor.clock import monotonic_ns, seconds_ns
from device_agent.floor.errors import SpoolFullError
from device_agent.floor.settings import AgentSettings
from device_agent.probes.host import OthersCpu, host_health
from device_agent.targets.port import RuntimeProcess

_log = structlog.get_logger(__name__)


class HostSampler:
    """One attempt's samples of the agent's own machine."""

    def __init__(self, spool: Spool, settings: AgentSettings) -> None:
        """The first sample is due at once."""
        self._spool = spool
        self._settings = settings
        self._cpu = OthersCpu()
        self._due_ns = monotonic_ns()

    async def sample_if_due(self, process: RuntimeProcess | None) -> None:
        """At most one sample; one that the full disk refuses is left out."""
        now_ns = monotonic_ns()
        if now_ns < self._due_ns:
            return
        self._due_ns = now_ns + seconds_ns(self._settings.host_sample_s)
        try:
            await asyncio.to_thread(self._sample, None if process is None else process.host_pid)
        except SpoolFullError as error:
            _log.warning("sample_not_kept", detail=str(error))

    def _sample(self, runtime_pid: int | None) -> None:
        percent = self._cpu.percent(runtime_pid)
        health = host_health(self._settings.agent_home, 0)
        self._spool.report_drops(monotonic_ns())
        self._spool.record(
            lambda seq: HostSampled(
                seq=seq,
                t_mono_ns=monotonic_ns(),
                others_cpu_percent=percent,
                disk_free_bytes=health.disk_free_bytes,
                open_files=health.open_files,
            )
        )
