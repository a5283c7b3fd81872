"""What agent, phone worker and app agree on: names, environment, files and folders in the app's container.

On a phone the app is the runtime. It speaks contract/runtime_link.py: the same files, in its Documents
folder, and the same lines, on a TCP port of the phone's loopback that the host reaches through usbmux.
"""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from contract.ids import Sha256
from contract.model import ContractModel

BUNDLE_ID: Final = "dev.dynofarm.runner"

ENV_ATTEMPT_FOLDER: Final = "DYNOFARM_ATTEMPT_FOLDER"
"""RunFile.attempt_folder."""
ENV_MODEL_FOLDER: Final = "DYNOFARM_MODEL_FOLDER"
"""RunFile.model_folder."""
ENV_PORT: Final = "DYNOFARM_PORT"
"""RunFile.port."""
ENV_MEMORY_LIMIT: Final = "DYNOFARM_MEMORY_LIMIT_BYTES"
"""What the app may use before the device kills it. Only an emulated device sets it: a real app asks iOS."""

ATTEMPTS_FOLDER: Final = "attempts"
"""Documents/attempts/<attempt_id>/ holds spec.json, lease.json, events.jsonl, runtime.log and run.json."""
MODELS_FOLDER: Final = "models"
"""Documents/models/<sha256 of the content>/<file name>: a model is pushed once."""
RUN_FILE: Final = "run.json"
"""A RunFile."""
PARTIAL_SUFFIX: Final = ".part"
"""A file that is still being pushed; renamed once its size and digest are right."""

BUILD_FILE: Final = "build.json"
"""Documents/build.json, a BuildFile."""

VIRTUAL_DOMAIN: Final = "dev.dynofarm.virtual"
"""Lockdown domain that only an emulated device has: `Virtual` is true; `MemoryBytes`, `ThermalState` and
`LowPowerMode` tell what no service of a real device tells the host."""

_ENVIRONMENT: Final = {
    "attempt_folder": ENV_ATTEMPT_FOLDER,
    "model_folder": ENV_MODEL_FOLDER,
    "port": ENV_PORT,
}


def _stays_below(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not parts or parts[0] == "/" or ".." in parts or "\0" in path:
        raise ValueError("not a path below the app's Documents")
    return path


InDocuments = Annotated[str, Field(max_length=1024), AfterValidator(_stays_below)]
"""A path relative to the app's Documents."""


class RunFile(ContractModel):
    """What the app is started for: in its environment, and in the attempt's folder as a file, since iOS drops
    the environment when it starts the app anew."""

    attempt_folder: InDocuments
    model_folder: InDocuments
    """File or folder of the model."""
    port: Annotated[int, Field(ge=1, lt=65_536)]
    """On the phone's loopback, where the app serves the stream of runtime_link."""

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> "RunFile":
        """ValidationError where something is missing or wrong; other variables are of no interest."""
        named = {field: environment[name] for field, name in _ENVIRONMENT.items() if name in environment}
        return cls.model_validate(named)

    def environment(self) -> dict[str, str]:
        """The same as environment variables."""
        return {name: str(getattr(self, field)) for field, name in _ENVIRONMENT.items()}


class BuildFile(ContractModel):
    """Which build is installed, written by the host after an installation. An upgrade keeps it and a removal
    of the app removes it, as iOS does with Documents."""

    sha256: Sha256
    """Of the IPA."""
