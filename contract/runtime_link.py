"""Between device agent and runtime: files in the attempt's folder, and one stream socket.

The agent writes `spec.json` (AttemptSpec) and `lease.json` (LeaseFile, replaced atomically at every
renewal), then starts the runtime. The runtime appends every event to `events.jsonl` and also offers
them on a socket: the reader sends one Subscribe line, then gets event lines, and Heartbeat lines when
nothing happens. A cut connection loses nothing: subscribe again, or read the file.
"""

from typing import Annotated, Final, Literal

from pydantic import Field

from contract.events.envelope import Stream
from contract.model import ContractModel

SPEC_FILE: Final = "spec.json"
LEASE_FILE: Final = "lease.json"
EVENTS_FILE: Final = "events.jsonl"
RUNTIME_LOG_FILE: Final = "runtime.log"

HEARTBEAT_INTERVAL_S: Final = 2.0


class LeaseFile(ContractModel):
    """Until when the runtime may use the device, on the machine's monotonic clock.

    Past the deadline the runtime stops by itself, even when its agent is dead: the controller may
    by then have given the device to someone else (service.md 8.5, self-fence).
    """

    deadline_mono_ns: Annotated[int, Field(ge=0)]
    directive: Literal["continue", "cancel"] = "continue"
    ttl_s: Annotated[float, Field(gt=0, le=86_400)] | None = None
    """Set for a runtime on another machine (a phone), whose clock is not the agent's: the deadline is then
    ttl_s after the runtime first saw this `renewal`, and deadline_mono_ns means nothing to it."""
    renewal: Annotated[int, Field(ge=0)] = 0


class Subscribe(ContractModel):
    """The reader holds every event of a stream up to and including this number; 0 for none."""

    after: dict[Stream, Annotated[int, Field(ge=0)]] = {}


class Heartbeat(ContractModel):
    """The runtime lives although it has nothing to say."""

    type: Literal["heartbeat"] = "heartbeat"


class RuntimeExit:
    """Exit codes of a runtime's process."""

    COMPLETED: Final = 0
    FAILED: Final = 1
    """runtime_finished carries the reason."""
    USAGE: Final = 2
    CANCELLED: Final = 3
    LEASE_EXPIRED: Final = 4
