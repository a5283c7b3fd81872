"""Settings of a device agent: environment `DYNOFARM_*`, overridden by the command line."""

import os
import re
import socket
import sys
from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from contract.home import DEFAULT_HOME, DEFAULT_URL, HomeFolder
from contract.ids import Name
from device_agent.floor.start_policy import StartPolicy
from rest.address import Address
from rest.errors import SettingError

Positive = Annotated[float, Field(gt=0)]
MIB = 1 << 20


def _own_name() -> str:
    """The host's name as a contract Name."""
    slug = re.sub(r"[^a-z0-9_.-]+", "-", socket.gethostname().lower()).strip("-._")
    return slug[:64] or "agent"


def _usbmux_address() -> str:
    """As libusbmuxd and pymobiledevice3 are told."""
    return os.environ.get("USBMUXD_SOCKET_ADDRESS", "/var/run/usbmuxd")


class AgentSettings(BaseSettings):
    """Everything that may be chosen. Times of the lease protocol are not here: the controller states them."""

    model_config = SettingsConfigDict(env_prefix="DYNOFARM_", frozen=True, use_attribute_docstrings=True)

    home: Path = DEFAULT_HOME
    controller_url: str = DEFAULT_URL
    ca_file: Path | None = None
    """Certificates (PEM) of the authorities that are believed, instead of the system's."""
    enrollment_token: SecretStr | None = None
    """One-time token, used when there is no identity yet or the controller refuses the one there is."""
    agent_name: Name = Field(default_factory=_own_name)
    models_dir: Path | None = None
    """None: `<home>/models`."""
    runtime_command: Annotated[tuple[str, ...], Field(min_length=1)] = (sys.executable, "-m", "runtime")
    """What starts a runtime; as an environment variable it is a JSON list."""
    disk_floor_bytes: Annotated[int, Field(ge=0)] = 512 * MIB
    """No claim while less is free: the reserve for control events of what runs already."""
    spool_quota_bytes: Annotated[int, Field(ge=64 * 1024)] = 256 * MIB
    """Events of one attempt beyond this: log is dropped first, then samples are thinned."""
    keep_settled_s: Annotated[float, Field(ge=0)] = 86_400.0
    """An attempt's folder stays this long after its result was acknowledged."""
    max_open_files: Annotated[int, Field(ge=32)] = 512
    max_resident_bytes: Annotated[int, Field(ge=16 * MIB)] = 2048 * MIB
    """Over either budget the agent drains and starts itself anew."""
    call_timeout_s: Positive = 10.0
    """Deadline of every call; a claim gets its wait on top."""
    tick_s: Positive = 0.2
    host_sample_s: Positive = 5.0
    upload_interval_s: Positive = 0.5
    cancel_grace_s: Positive = 10.0
    """A cancelled runtime gets this long to end by itself before SIGTERM."""
    terminate_grace_s: Positive = 5.0
    """From SIGTERM to SIGKILL."""
    fence_grace_s: Positive = 1.0
    """The same at a self-fence: it must fit into the lease's margin."""
    shutdown_s: Positive = 10.0
    """SIGTERM to the agent: runtimes are stopped and results sent within this."""
    retry_first_s: Positive = 0.5
    retry_cap_s: Positive = 30.0
    usbmux_address: str = Field(default_factory=_usbmux_address)
    """Where iPhones are: a path or HOST:PORT; default USBMUXD_SOCKET_ADDRESS, else /var/run/usbmuxd.
    Empty: this agent looks for none."""
    builds_dir: Path | None = None
    """Where the app's signed IPAs lie. None: `<home>/builds`."""
    images_dir: Path | None = None
    """Where developer disk images lie. None: `<home>/images`."""
    worker_command: Annotated[tuple[str, ...], Field(min_length=1)] = (
        *(sys.executable, "-m", "device_agent.ios_worker"),
    )
    """What starts the worker of one iPhone; as an environment variable it is a JSON list."""
    device_call_s: Positive = 10.0
    """Deadline of a small call to a device."""
    device_chunk_s: Positive = 30.0
    """The longest time without progress of a file's transfer."""
    device_launch_s: Positive = 60.0
    device_install_s: Positive = 120.0
    """The longest time without progress of an installation."""
    device_free_bytes: Annotated[int, Field(ge=0)] = 1024 * MIB
    """No attempt on a device with less free space."""
    preflight_s: Positive = 30.0
    """A device that is ready is looked at this often."""
    preflight_retry_s: Positive = 3.0
    """One that is not, this often."""
    reattach_s: Positive = 90.0
    """A device that was unplugged in an attempt has this long to come back."""
    gather_s: Positive = 15.0
    """After an app's end: how long evidence of its cause is waited for."""
    start_policy: StartPolicy = StartPolicy()
    """When an iPhone may start a run; as an environment variable it is a JSON object."""
    device_sample_s: Positive = 1.0
    device_conditions_s: Positive = 10.0
    exit_with_parent: bool = False
    """End when the process that started this one is gone (`dynofarm up`)."""

    @field_validator("home", "models_dir", "builds_dir", "images_dir")
    @classmethod
    def _absolute(cls, path: Path | None) -> Path | None:
        return path.expanduser().absolute() if path is not None else None

    @field_validator("controller_url")
    @classmethod
    def _an_http_address(cls, url: str) -> str:
        try:
            return Address.of(url).url
        except SettingError as error:
            raise ValueError("give the controller's address as http://HOST:PORT or https://HOST") from error

    @property
    def _home_folder(self) -> HomeFolder:
        return HomeFolder(self.home.expanduser().absolute())

    @property
    def agent_home(self) -> Path:
        """Where this process keeps everything of its own."""
        return self._home_folder.device_agent_folder

    @property
    def attempts_folder(self) -> Path:
        """A folder for each attempt."""
        return self._home_folder.attempts_folder

    @property
    def models_folder(self) -> Path:
        """Where models lie: `<name>.gguf`, or a folder `<name>/`."""
        return self.models_dir or self._home_folder.models_folder

    @property
    def builds_folder(self) -> Path:
        """Where IPAs lie."""
        return self.builds_dir or self.home.expanduser().absolute() / "builds"

    @property
    def images_folder(self) -> Path:
        """Where developer disk images lie."""
        return self.images_dir or self.home.expanduser().absolute() / "images"
