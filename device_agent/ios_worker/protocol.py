"""Between device agent and worker: JSON lines, one message each, over the worker's stdin and stdout.

The agent writes Request lines; the worker writes Answered, Progressed and Noticed lines. Every call has a
deadline: the longest time without progress. The worker gives up at it and says `stalled`; a worker that does
not even say that is killed. Standard error is for people. The end of stdin is the end of the worker: its
agent is gone.
"""

from enum import StrEnum
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

from pydantic import Field, TypeAdapter

from contract.model import ContractModel

MAX_LINE_BYTES: Final = 4 << 20
GOODBYE_S: Final = 2.0
"""A worker that was told to stop has this long to close its connections."""


class WorkerErrorKind(StrEnum):
    """What went wrong at a device, closed: everything that pymobiledevice3 raises becomes one of these."""

    UNTRUSTED = "untrusted"
    DENIED = "denied"
    LOCKED = "locked"
    DEVELOPER_MODE_OFF = "developer_mode_off"
    IMAGE_MISSING = "image_missing"
    TUNNEL = "tunnel"
    DISCONNECTED = "disconnected"
    STALLED = "stalled"
    NO_SPACE = "no_space"
    PROVISIONING = "provisioning"
    INSTALL_REFUSED = "install_refused"
    LAUNCH_REFUSED = "launch_refused"
    APP_MISSING = "app_missing"
    FILE_MISSING = "file_missing"
    DIGEST_WRONG = "digest_wrong"
    UNSUPPORTED = "unsupported"
    PROTOCOL = "protocol"
    BROKEN = "broken"
    """The worker itself is in a state that nobody foresaw; it ends, and a new one may do the same call."""
    LIBRARY_MISSING = "library_missing"


class Nothing(ContractModel):
    """No parameters, or no answer."""


class Description(ContractModel):
    """Who the device is. clock_s: its own wall clock in seconds since 1970. None: it does not say."""

    device_id: str
    device_model: str
    os_name: str
    os_version: str
    os_build: str
    paired: bool
    locked: bool | None
    developer_mode: bool | None
    boot_id: str
    clock_s: float | None
    utc_offset_s: float
    virtual: bool
    memory_bytes: int | None


class Conditions(ContractModel):
    """What may spoil a measurement. None: the device does not say. thermal: a contract ThermalState."""

    free_bytes: int | None
    battery_percent: float | None
    charging: bool | None
    temperature_celsius: float | None
    low_power_mode: bool | None
    thermal: Literal["nominal", "fair", "serious", "critical", "unknown"]


class DeveloperAccess(ContractModel):
    """A developer service answered: image and tunnel are good. app_pid None: the app does not run."""

    app_pid: int | None


class AppQuery(ContractModel):
    """Which app."""

    bundle_id: str


class InstalledApp(ContractModel):
    """What is installed. build_sha256 None: nobody wrote down from which file."""

    installed: bool
    version: str
    executable: str
    build_sha256: str | None


class Install(ContractModel):
    """Install this IPA over whatever is there, and write down its digest."""

    bundle_id: str
    ipa_path: str
    sha256: str
    upgrade: bool


class Push(ContractModel):
    """Bring a file to the app's folder: resumed, compared by size and digest, then renamed.

    remote_path is relative to the app's Documents.
    """

    bundle_id: str
    local_path: str
    remote_path: str
    sha256: str


class Pushed(ContractModel):
    """sent_bytes: what travelled now; 0 when the file was there."""

    sent_bytes: int


class WriteFile(ContractModel):
    """A small text file, there whole or not at all."""

    bundle_id: str
    remote_path: str
    text: str


class Fetch(ContractModel):
    """Append what the device's file has beyond offset to the local file, which has offset bytes."""

    bundle_id: str
    remote_path: str
    local_path: str
    offset: Annotated[int, Field(ge=0)]


class Fetched(ContractModel):
    """size_bytes: of the device's file, and of the local file now."""

    size_bytes: int


class RemotePath(ContractModel):
    """A file or folder, relative to the app's Documents."""

    bundle_id: str
    remote_path: str


class Names(ContractModel):
    """What a folder has, sorted; empty for one that is not there."""

    names: list[str]


class Launch(ContractModel):
    """Start the app with this environment; an instance that runs is killed first."""

    bundle_id: str
    environment: dict[str, str]


class Launched(ContractModel):
    """The app's process."""

    pid: int


class Watch(ContractModel):
    """Follow a process: its exit, its footprint, its log lines and the device's conditions become notices."""

    bundle_id: str
    pid: int
    sample_interval_ms: Annotated[int, Field(ge=10)]
    conditions_interval_s: Annotated[float, Field(gt=0)]


class Signal(ContractModel):
    """A signal for a process."""

    pid: int
    number: Annotated[int, Field(ge=1, le=31)]


class Bridge(ContractModel):
    """Offer the app's port as a Unix socket; each connection there is one to the port."""

    socket_path: str
    port: Annotated[int, Field(ge=1, le=65_535)]


class FindReports(ContractModel):
    """Bring crash reports that are newer than since_s, by the device's clock, into the local folder."""

    since_s: float
    names: list[str]
    """A report is taken when its file name starts with one of these."""
    local_folder: str
    known: list[str]
    """Remote paths that were brought before."""


class ReportFile(ContractModel):
    """A report that was brought. modified_s: by the device's clock."""

    remote_path: str
    local_path: str
    modified_s: float


class Reports(ContractModel):
    """Those that were brought now; left: how many were too large, too many or could not be read."""

    files: list[ReportFile]
    left: int


class ProcessExited(ContractModel):
    """The device told how a process ended."""

    type: Literal["process_exited"] = "process_exited"
    pid: int
    exit_code: int | None
    signal: int | None


class FootprintSeen(ContractModel):
    """sysmontap's figure for the watched process; cpu_percent of one core."""

    type: Literal["footprint_seen"] = "footprint_seen"
    pid: int
    footprint_bytes: int
    cpu_percent: float | None


class ProcessAbsent(ContractModel):
    """A sample of all processes lacks the watched one."""

    type: Literal["process_absent"] = "process_absent"
    pid: int


class LogLineSeen(ContractModel):
    """A line of the device's log that concerns the watched process."""

    type: Literal["log_line_seen"] = "log_line_seen"
    pid: int
    process_name: str
    message: str
    clock_s: float | None


class ConditionsSeen(ContractModel):
    """Battery, temperature and the like, now."""

    type: Literal["conditions_seen"] = "conditions_seen"
    conditions: Conditions


class WatchEnded(ContractModel):
    """A part of the watching has ended and nobody follows that any more."""

    type: Literal["watch_ended"] = "watch_ended"
    part: Literal["exits", "footprint", "log", "conditions"]
    kind: WorkerErrorKind
    detail: str


Notice = Annotated[
    ProcessExited | FootprintSeen | ProcessAbsent | LogLineSeen | ConditionsSeen | WatchEnded,
    Field(discriminator="type"),
]

Q = TypeVar("Q", bound=ContractModel)
A = TypeVar("A", bound=ContractModel)


class Method(Generic[Q, A]):
    """One thing that a worker can do: its name, what it needs and what it answers."""

    def __init__(self, name: str, request: type[Q], answer: type[A]) -> None:
        self.name = name
        self.request = request
        self.answer = answer


PING: Final = Method("ping", Nothing, Nothing)
"""Touches no device: the answer says that the worker is up."""
DESCRIBE: Final = Method("describe", Nothing, Description)
CONDITIONS: Final = Method("conditions", Nothing, Conditions)
MOUNT_IMAGE: Final = Method("mount_image", Nothing, Nothing)
OPEN_TUNNEL: Final = Method("open_tunnel", Nothing, Nothing)
DEVELOPER: Final = Method("developer", AppQuery, DeveloperAccess)
APP: Final = Method("app", AppQuery, InstalledApp)
INSTALL: Final = Method("install", Install, Nothing)
PUSH: Final = Method("push", Push, Pushed)
WRITE: Final = Method("write", WriteFile, Nothing)
FETCH: Final = Method("fetch", Fetch, Fetched)
LIST: Final = Method("list", RemotePath, Names)
REMOVE: Final = Method("remove", RemotePath, Nothing)
LAUNCH: Final = Method("launch", Launch, Launched)
WATCH: Final = Method("watch", Watch, Nothing)
SIGNAL: Final = Method("signal", Signal, Nothing)
BRIDGE: Final = Method("bridge", Bridge, Nothing)
REPORTS: Final = Method("reports", FindReports, Reports)
RELEASE: Final = Method("release", Nothing, Nothing)
"""Stop watching and bridging, close what a run opened; the device stays connected."""


class Request(ContractModel):
    """One call. deadline_s: the longest time without progress."""

    id: Annotated[int, Field(ge=1)]
    method: str
    deadline_s: Annotated[float, Field(gt=0)]
    params: dict[str, Any]


class CallFailure(ContractModel):
    """Why a call has no answer."""

    kind: WorkerErrorKind
    detail: str


class Answered(ContractModel):
    """The end of a call: exactly one of answer and error is set."""

    id: int
    answer: dict[str, Any] | None = None
    error: CallFailure | None = None


class Progressed(ContractModel):
    """A call goes on: done of total, bytes or percent."""

    id: int
    done: int
    total: int


class Noticed(ContractModel):
    """Something that nobody asked for."""

    notice: Notice


FROM_WORKER: TypeAdapter[Answered | Progressed | Noticed] = TypeAdapter(Answered | Progressed | Noticed)
