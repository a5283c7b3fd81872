"""Between device agent and runtime: files in the attempt's folder, and one stream socket.

The agent writes `spec.json` (AttemptSpec) and `lease.json` (LeaseFile, replaced atomically at every
renewal), then starts the runtime. The runtime appends every event to `events.jsonl` and also offers
them on a socket: the reader sends one Subscribe line, then gets event lines, and Heartbeat lines when
nothing happens. A cut connection loses nothing: subscribe again, or read the file.
"""

from enum import IntEnum
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from contract.events.envelope import Count, MonoNs, Stream
from contract.model import ContractModel

SPEC_FILE: Final = "spec.json"
LEASE_FILE: Final = "lease.json"
EVENTS_FILE: Final = "events.jsonl"
RUNTIME_LOG_FILE: Final = "runtime.log"

ATTEMPT_DIR_OPTION: Final = "--attempt-dir"
MODEL_PATH_OPTION: Final = "--model-path"
SOCKET_OPTION: Final = "--socket"

HEARTBEAT_INTERVAL_S: Final = 2.0
MAX_SUBSCRIBE_BYTES: Final = 4096
"""Of the Subscribe line; a longer one ends the connection."""


class LeaseFile(ContractModel):
    """Until when the runtime may use the device, on the machine's monotonic clock.

    Past the deadline the runtime stops by itself, even when its agent is dead: the controller may
    by then have given the device to someone else.
    """

    deadline_mono_ns: MonoNs
    directive: Literal["continue", "cancel"] = "continue"
    ttl_s: Annotated[float, Field(gt=0, le=86_400)] | None = None
    """Set for a runtime on another machine (a phone), whose clock is not the agent's: the deadline is then
    ttl_s after the runtime first saw this `renewal`, and deadline_mono_ns means nothing to it."""
    renewal: Annotated[int, Field(ge=0, lt=2**63)] = 0


class Subscribe(ContractModel):
    """The reader holds every event of a stream up to and including this number; 0 for none."""

    after: dict[Stream, Count] = {}


class Heartbeat(ContractModel):
    """The runtime lives although it has nothing to say."""

    type: Literal["heartbeat"] = "heartbeat"


class RuntimeExit(IntEnum):
    """Exit codes of a runtime's process."""

    COMPLETED = 0
    FAILED = 1
    """runtime_finished carries the reason."""
    USAGE = 2
    CANCELLED = 3
    LEASE_EXPIRED = 4


def runtime_arguments(attempt_dir: Path, model_path: Path, socket: Path) -> list[str]:
    """The command line of a runtime, after its program."""
    return [
        *(ATTEMPT_DIR_OPTION, str(attempt_dir)),
        *(MODEL_PATH_OPTION, str(model_path)),
        *(SOCKET_OPTION, str(socket)),
    ]
