"""Events: one JSON object a line. `parse_event(line)` is the only way in."""

from types import MappingProxyType
from typing import Annotated, Final

from pydantic import Field, TypeAdapter, ValidationError

from contract.events.calls import (
    AgentFinished,
    AgentRetried,
    CallAdmitted,
    CallArrived,
    CallFailed,
    CallFinished,
    ContaminationFound,
    SequencePreempted,
    SequenceResumed,
    TokenEmitted,
    ToolWaitFinished,
    ToolWaitStarted,
)
from contract.events.device import (
    BatterySampled,
    DeviceAgentRestarted,
    EventRefused,
    HostSampled,
    KvSampled,
    MemorySampled,
    MemoryWarned,
    PhaseChanged,
    RuntimeExited,
    RuntimeStarted,
    SpoolDropped,
    ThermalSampled,
    TransportLost,
)
from contract.events.envelope import EventEnvelope, Stream
from contract.events.lifecycle import (
    ArmConditions,
    BudgetRow,
    Conditions,
    ConditionsRecorded,
    LogLine,
    MemoryBudgeted,
    Producer,
    RuntimeFinished,
    RuntimeStage,
    StreamOpened,
    TrialFinished,
    TrialStarted,
)
from contract.events.trace import (
    BatchExecuted,
    BatchMember,
    BlockCopied,
    BlockEvicted,
    BlocksAllocated,
    BlocksReleased,
    BlocksShared,
    PrefixHit,
)

MAX_EVENT_LINE_BYTES: Final = 256 * 1024

Event = Annotated[
    StreamOpened
    | RuntimeStage
    | ConditionsRecorded
    | MemoryBudgeted
    | TrialStarted
    | TrialFinished
    | RuntimeFinished
    | LogLine
    | CallArrived
    | CallAdmitted
    | TokenEmitted
    | CallFinished
    | CallFailed
    | ToolWaitStarted
    | ToolWaitFinished
    | SequencePreempted
    | SequenceResumed
    | AgentRetried
    | AgentFinished
    | ContaminationFound
    | MemorySampled
    | KvSampled
    | ThermalSampled
    | BatterySampled
    | MemoryWarned
    | PhaseChanged
    | RuntimeStarted
    | RuntimeExited
    | DeviceAgentRestarted
    | TransportLost
    | SpoolDropped
    | EventRefused
    | HostSampled
    | BlocksAllocated
    | BlocksShared
    | BlockCopied
    | BlocksReleased
    | BlockEvicted
    | PrefixHit
    | BatchExecuted,
    Field(discriminator="type"),
]

EVENT_ADAPTER: Final[TypeAdapter[Event]] = TypeAdapter(Event)

_ANY = frozenset(Stream)
_CONTROL = frozenset({Stream.CONTROL})
_SAMPLES = frozenset({Stream.SAMPLES})
_SAMPLES_OR_AGENT = frozenset({Stream.SAMPLES, Stream.DEVICE_AGENT})
_LOG = frozenset({Stream.LOG})
_AGENT = frozenset({Stream.DEVICE_AGENT})
# A kill or a crash is seen by the agent; a warning by the app itself.
STREAMS_OF_TYPE: Final = MappingProxyType(
    {
        "stream_opened": _ANY,
        **dict.fromkeys(
            (
                *(
                    "runtime_stage",
                    "conditions_recorded",
                    "memory_budgeted",
                    "trial_started",
                    "trial_finished",
                ),
                *("runtime_finished", "call_arrived", "call_admitted", "token_emitted", "call_finished"),
                *("call_failed", "tool_wait_started", "tool_wait_finished", "sequence_preempted"),
                *("sequence_resumed", "agent_retried", "agent_finished", "contamination_found"),
                "memory_warned",
            ),
            _CONTROL,
        ),
        "kv_sampled": _SAMPLES,
        **dict.fromkeys(("memory_sampled", "thermal_sampled", "battery_sampled"), _SAMPLES_OR_AGENT),
        **dict.fromkeys(
            (
                *("log_line", "blocks_allocated", "blocks_shared", "block_copied", "blocks_released"),
                *("block_evicted", "prefix_hit", "batch_executed"),
            ),
            _LOG,
        ),
        **dict.fromkeys(
            (
                *("phase_changed", "runtime_started", "runtime_exited"),
                *(
                    "device_agent_restarted",
                    "transport_lost",
                    "spool_dropped",
                    "event_refused",
                    "host_sampled",
                ),
            ),
            _AGENT,
        ),
    }
)


class EventLineError(ValueError):
    """A line is not an event of this contract. `field` names what is wrong, "" for the line itself."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}" if field else problem)
        self.field = field


def parse_event(line: bytes | str) -> Event:
    """The event on one line; raises EventLineError, and nothing else, for any other input."""
    if len(line) > MAX_EVENT_LINE_BYTES:
        raise EventLineError(
            "", f"the line has {len(line)} bytes, at most {MAX_EVENT_LINE_BYTES} are allowed"
        )
    try:
        return EVENT_ADAPTER.validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise EventLineError(".".join(str(part) for part in first["loc"][1:]), first["msg"]) from error


def event_line(event: EventEnvelope) -> bytes:
    """The event as one JSON line without its newline: the same bytes for the same event, always."""
    return event.model_dump_json().encode()


def numbered_line(event: EventEnvelope, seq: int) -> bytes:
    """`event_line` of the event with this seq in place of its own, without a copy of the event.

    seq is every event's first field, so its digits are all that differs; a copy costs more than the line.
    """
    own, numbered = (b'{"seq":%d' % each for each in (event.seq, seq))
    return numbered + event_line(event)[len(own) :]


__all__ = [
    "EVENT_ADAPTER",
    "MAX_EVENT_LINE_BYTES",
    "STREAMS_OF_TYPE",
    "AgentFinished",
    "AgentRetried",
    "ArmConditions",
    "BatchExecuted",
    "BatchMember",
    "BatterySampled",
    "BlockCopied",
    "BlockEvicted",
    "BlocksAllocated",
    "BlocksReleased",
    "BlocksShared",
    "BudgetRow",
    "CallAdmitted",
    "CallArrived",
    "CallFailed",
    "CallFinished",
    "Conditions",
    "ConditionsRecorded",
    "ContaminationFound",
    "DeviceAgentRestarted",
    "Event",
    "EventEnvelope",
    "EventLineError",
    "EventRefused",
    "HostSampled",
    "KvSampled",
    "LogLine",
    "MemoryBudgeted",
    "MemorySampled",
    "MemoryWarned",
    "PhaseChanged",
    "PrefixHit",
    "Producer",
    "RuntimeExited",
    "RuntimeFinished",
    "RuntimeStage",
    "RuntimeStarted",
    "SequencePreempted",
    "SequenceResumed",
    "SpoolDropped",
    "Stream",
    "StreamOpened",
    "ThermalSampled",
    "TokenEmitted",
    "ToolWaitFinished",
    "ToolWaitStarted",
    "TransportLost",
    "TrialFinished",
    "TrialStarted",
    "event_line",
    "numbered_line",
    "parse_event",
]
