"""What a worker tells of a watched app: facts for the verdict, and events for the agent's stream. Pure."""

from collections import deque
from collections.abc import Sequence
from typing import Final

from contract.events import BatterySampled, EventEnvelope, MemorySampled, ThermalSampled, TransportLost
from device_agent.floor.clock import monotonic_ns
from device_agent.ios_worker.protocol import (
    Conditions,
    ConditionsSeen,
    FootprintSeen,
    LogLineSeen,
    Notice,
    ProcessAbsent,
    ProcessExited,
    WatchEnded,
)
from device_agent.targets.ios.evidence import ExitSeen, LogLine
from device_agent.targets.port import Observation

SYSMONTAP: Final = "sysmontap_phys_footprint"
_MAX_OBSERVATIONS: Final = 4096
_MAX_LINES: Final = 256
_DETAIL_CHARS: Final = 1000


class AppObservations:
    """Of one process. `dropped` counts observations that nobody fetched in time."""

    def __init__(self, pid: int | None) -> None:
        """pid None: not known yet; then only the device's conditions are kept."""
        self.pid = pid
        self.exit: ExitSeen | None = None
        self.absent = 0
        self.lines: deque[LogLine] = deque(maxlen=_MAX_LINES)
        self.conditions: Conditions | None = None
        self.seen_ns = monotonic_ns()
        self.broken: WatchEnded | None = None
        self.dropped = 0
        self._observations: deque[Observation] = deque()

    def take(self, notice: Notice) -> None:
        """One notice of the worker."""
        match notice:
            case ConditionsSeen():
                self._conditions(notice.conditions)
            case WatchEnded():
                self.broken = notice
            case ProcessExited() | FootprintSeen() | ProcessAbsent() if notice.pid != self.pid:
                return
            case ProcessExited():
                self.exit = ExitSeen(notice.exit_code, notice.signal)
            case FootprintSeen():
                self.found()
                self._footprint(notice)
            case ProcessAbsent():
                self.absent += 1
            case LogLineSeen():
                self.lines.append(LogLine(notice.pid, notice.message))

    def found(self) -> None:
        """A look found the process."""
        self.absent = 0
        self.seen_ns = monotonic_ns()

    def transport_lost(self, detail: str) -> None:
        """For the stream: the device was away, or did not answer."""
        now_ns = monotonic_ns()
        text = detail[:_DETAIL_CHARS]
        self._observe(lambda seq: TransportLost(seq=seq, t_mono_ns=now_ns, detail=text))

    def observations(self) -> Sequence[Observation]:
        """Since the last call."""
        taken = tuple(self._observations)
        self._observations.clear()
        return taken

    def _footprint(self, seen: FootprintSeen) -> None:
        now_ns = monotonic_ns()

        def event(seq: int) -> EventEnvelope:
            return MemorySampled(
                seq=seq,
                t_mono_ns=now_ns,
                trial=None,
                footprint_bytes=seen.footprint_bytes,
                method=SYSMONTAP,
            )

        self._observe(event)

    def _conditions(self, found: Conditions) -> None:
        self.conditions = found
        now_ns = monotonic_ns()
        level, charging = found.battery_percent, found.charging
        if level is not None:
            self._observe(
                lambda seq: BatterySampled(
                    seq=seq,
                    t_mono_ns=now_ns,
                    level_percent=min(100.0, max(0.0, level)),
                    charging=bool(charging),
                    low_power_mode=found.low_power_mode,
                    temperature_celsius=found.temperature_celsius,
                )
            )
        if found.thermal != "unknown":
            self._observe(lambda seq: ThermalSampled(seq=seq, t_mono_ns=now_ns, state=found.thermal))

    def _observe(self, observation: Observation) -> None:
        if len(self._observations) >= _MAX_OBSERVATIONS:
            self.dropped += 1
            return
        self._observations.append(observation)
