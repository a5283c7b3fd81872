"""What agent, phone worker and app agree on: names, environment, folders in the app's container.

On a phone the app is the runtime. It speaks contract/runtime_link.py: the same files, in its Documents
folder, and the same lines, on a TCP port of the phone's loopback that the host reaches through usbmux.
"""

from typing import Final

BUNDLE_ID: Final = "dev.dynofarm.runner"

ENV_ATTEMPT_FOLDER: Final = "DYNOFARM_ATTEMPT_FOLDER"
"""Folder of the attempt, relative to the app's Documents."""
ENV_MODEL_FOLDER: Final = "DYNOFARM_MODEL_FOLDER"
"""File or folder of the model, relative to the app's Documents."""
ENV_PORT: Final = "DYNOFARM_PORT"
"""Port on the phone's loopback on which the app serves the stream of runtime_link."""
ENV_MEMORY_LIMIT: Final = "DYNOFARM_MEMORY_LIMIT_BYTES"
"""What the app may use before the device kills it. Only an emulated device sets it: a real app asks iOS."""

ATTEMPTS_FOLDER: Final = "attempts"
"""Documents/attempts/<attempt_id>/ holds spec.json, lease.json, events.jsonl, runtime.log and run.json."""
MODELS_FOLDER: Final = "models"
"""Documents/models/<sha256 of the content>/<file name>: a model is pushed once."""
RUN_FILE: Final = "run.json"
"""The environment again, as a file: iOS drops the environment when it starts the app anew."""
PARTIAL_SUFFIX: Final = ".part"
"""A file that is still being pushed; renamed once its size and digest are right."""

BUILD_FILE: Final = "build.json"
"""Documents/build.json: {"sha256": digest of the installed IPA}, written by the host after an installation.
An upgrade keeps it and a removal of the app removes it, as iOS does with Documents."""

VIRTUAL_DOMAIN: Final = "dev.dynofarm.virtual"
"""Lockdown domain that only an emulated device has: `Virtual` is true; `MemoryBytes`, `ThermalState` and
`LowPowerMode` tell what no service of a real device tells the host."""
