"""What the agent needs of a device, whatever it is: the port behind which targets differ."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from contract.agent_api import DeviceReport
from contract.events import EventEnvelope
from contract.ids import DeviceId, Name
from contract.run_end import RunEnd
from device_agent.floor.attempt_folder import AttemptFolder


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """exit_code or signal; both None when the process was found gone and nobody waited for it."""

    exit_code: int | None
    signal: int | None


Observation = Callable[[int], EventEnvelope]
"""Makes an event of the agent's stream from the number that it gets there."""


class RuntimeProcess(Protocol):
    """A runtime that was started, now or by an earlier life of this agent. No method blocks."""

    @property
    def pid(self) -> int:
        """On its device; for people and for the events."""
        ...

    @property
    def host_pid(self) -> int | None:
        """The same where the device is this machine, else None."""
        ...

    @property
    def away_until_ns(self) -> int:
        """Until when its device was out of reach, monotonic: silence before that says nothing. 0: never."""
        ...

    def exit_status(self) -> ExitStatus | None:
        """None while it lives, or while what it left on its device is still being brought here."""
        ...

    def terminate(self) -> None:
        """SIGTERM to it and all its children; nothing when it has ended."""
        ...

    def kill(self) -> None:
        """SIGKILL, likewise."""
        ...

    def lease_renewed(self) -> None:
        """The folder's lease.json was written anew."""
        ...

    def observations(self) -> Sequence[Observation]:
        """What the target saw since the last call, each told once."""
        ...

    def end(self) -> RunEnd | None:
        """Why it ended, as far as its device tells more than the exit status; None: nothing more."""
        ...


class Target(Protocol):
    """One device. Methods may block for a while: the shell calls them in a thread, under a deadline."""

    @property
    def device_id(self) -> DeviceId:
        """The same for ever."""
        ...

    @property
    def start_deadline_s(self) -> float:
        """How long `launch` may take; an attempt's own limits may end it earlier, by `abort_launch`."""
        ...

    def report(self) -> DeviceReport | None:
        """The device as it is now; a fault is a reason in it, never an exception. None: it is away."""
        ...

    def model_path(self, name: Name) -> Path:
        """Where the model lies on this host; ModelMissingError."""
        ...

    def socket_path(self, folder: AttemptFolder) -> Path:
        """Where the runtime of this attempt listens; the same after a restart of the agent."""
        ...

    def launch(self, folder: AttemptFolder, model_path: Path) -> RuntimeProcess:
        """Bring there what is needed, start the runtime and record its process; LaunchError."""
        ...

    def abort_launch(self) -> None:
        """A launch that is under way ends soon, with LaunchError. Never blocks."""
        ...

    def adopt(self, folder: AttemptFolder) -> RuntimeProcess | None:
        """The runtime that an earlier life of this agent started; None when it is gone or never was."""
        ...


class Fleet(Protocol):
    """Targets that come and go by themselves. All methods belong to the agent's loop."""

    async def run(self, found: Callable[[Target], None]) -> None:
        """Until cancelled; `found` is called once for each target, also for one that was there before."""
        ...

    def target(self, device_id: DeviceId) -> Target | None:
        """A target of this fleet although it may be away; None when the id is none of its kind."""
        ...
