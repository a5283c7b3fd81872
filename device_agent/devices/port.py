"""What the agent needs of a device, whatever it is: the port behind which targets differ."""

from pathlib import Path
from typing import Protocol

from contract.agent_api import DeviceReport
from contract.ids import DeviceId, Name
from device_agent.attempt_folder import AttemptFolder
from device_agent.outcome import ExitStatus


class RuntimeProcess(Protocol):
    """A runtime that was started, now or by an earlier life of this agent. No method blocks."""

    @property
    def pid(self) -> int:
        """For people and for the events."""
        ...

    def exit_status(self) -> ExitStatus | None:
        """None while it lives."""
        ...

    def terminate(self) -> None:
        """SIGTERM to it and all its children; nothing when it has ended."""
        ...

    def kill(self) -> None:
        """SIGKILL, likewise."""
        ...

    def memory_killed(self) -> bool:
        """Whether the system killed for memory since it was started, as far as the system counts that."""
        ...


class Target(Protocol):
    """One device. Methods may block for a while: the shell calls them in a thread, under a deadline."""

    @property
    def device_id(self) -> DeviceId:
        """The same for ever."""
        ...

    def report(self) -> DeviceReport:
        """The device as it is now; a fault is a reason in it, never an exception."""
        ...

    def model_path(self, name: Name) -> Path:
        """Where the model lies; ModelMissingError."""
        ...

    def socket_path(self, folder: AttemptFolder) -> Path:
        """Where the runtime of this attempt listens; the same after a restart of the agent."""
        ...

    def launch(self, folder: AttemptFolder, model_path: Path) -> RuntimeProcess:
        """Start the runtime and record its process; LaunchError."""
        ...

    def adopt(self, folder: AttemptFolder) -> RuntimeProcess | None:
        """The runtime that an earlier life of this agent started; None when it is gone or never was."""
        ...
