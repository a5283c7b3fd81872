"""Settings of the command line, from the environment: DYNOFARM_CONTROLLER, DYNOFARM_TOKEN, DYNOFARM_HOME."""

import sys
from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict
from pydantic_settings.exceptions import SettingsError

from client.errors import UsageError
from contract.home import DEFAULT_HOME


class ClientSettings(BaseSettings):
    """Parsed once for each command; options of the command come before."""

    model_config = SettingsConfigDict(
        env_prefix="DYNOFARM_", extra="ignore", frozen=True, use_attribute_docstrings=True
    )

    controller: str = ""
    """Address of the controller; empty: that of the farm that runs in the home folder."""
    token: SecretStr = SecretStr("")
    """Never an option: a command line can be read by every user of the machine."""
    ca_file: Path | None = None
    """Certificates (PEM) of the authorities that are believed, instead of the system's."""
    home: Path = DEFAULT_HOME
    poll_s: Annotated[float, Field(gt=0, le=60)] = 1.0
    """Between two looks at a run that is followed."""
    embedded_command: Annotated[tuple[str, ...], Field(min_length=1)] = (
        sys.executable,
        *("-m", "controller.embedded"),
    )
    """What starts a farm on this machine; as an environment variable it is a JSON list."""
    agent_command: Annotated[tuple[str, ...], Field(min_length=1)] = (sys.executable, "-m", "device_agent")
    """What starts a device agent; as an environment variable it is a JSON list."""
    bench_command: Annotated[tuple[str, ...], Field(min_length=1)] = (sys.executable, "-m", "runtime.bench")
    """What measures the runtime; as an environment variable it is a JSON list."""
    calibrate_command: Annotated[tuple[str, ...], Field(min_length=1)] = (
        sys.executable,
        *("-m", "device_agent.calibrate"),
    )
    """What calibrates this machine; as an environment variable it is a JSON list."""
    virtual_command: Annotated[tuple[str, ...], Field(min_length=1)] = (
        sys.executable,
        *("-m", "device_agent.virtual"),
    )
    """What serves emulated iPhones; as an environment variable it is a JSON list."""


def read_settings() -> ClientSettings:
    """The environment's settings; UsageError that names the variable."""
    try:
        return ClientSettings()
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = "DYNOFARM_" + str(first["loc"][0]).upper()
        raise UsageError(
            "bad-setting", f"{name}: {first['msg']}", "correct the environment variable"
        ) from error
    except SettingsError as error:
        raise UsageError("bad-setting", f"DYNOFARM_*_COMMAND must be a JSON list: {error}") from error
