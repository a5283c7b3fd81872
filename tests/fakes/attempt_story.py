"""Events of an attempt as a runtime writes them, told trial by trial. Times are milliseconds of its clock."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from contract.events import EVENT_ADAPTER, Event, Stream
from contract.events.lifecycle import BudgetRow

ATTEMPT_ID = "att_01J00000000000000000000000"
MS = 1_000_000


@dataclass(frozen=True)
class CallStory:
    """One call: when it arrived, was admitted, and each token came, in ms from the trial's start."""

    agent: str = "a1"
    call: int = 0
    arrived_ms: float = 0.0
    admitted_ms: float = 0.0
    token_ms: Sequence[float] = (100.0, 120.0, 140.0)
    prompt_tokens: int = 100
    cached_tokens: int = 0
    text: str = "some words"


@dataclass(frozen=True)
class TrialStory:
    """One trial; `finished_ms` None leaves it without an end."""

    trial: int
    arm: str
    pair: int | None
    calls: Sequence[CallStory] = (CallStory(),)
    finished_ms: float | None = 200.0
    status: str = "completed"
    reason: str | None = None
    footprint_bytes: int | None = 400_000_000
    warmup: bool = False


@dataclass
class AttemptStory:
    """Collects events; every stream is opened first and numbers its own events."""

    attempt_id: str = ATTEMPT_ID
    clock_ns: int = 5_000_000_000
    events: dict[Stream, list[Event]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for stream in Stream:
            self.events[stream] = []
            self.add(
                stream,
                "stream_opened",
                stream=stream.value,
                contract_version="1.0",
                attempt_id=self.attempt_id,
                producer={"name": "story", "version": "1"},
                t_wall=datetime(2026, 1, 1, tzinfo=UTC),
            )

    def add(self, stream: Stream, kind: str, at_ms: float = 0.0, /, **fields: Any) -> Event:
        """Append one event at `at_ms` from now."""
        event = EVENT_ADAPTER.validate_python(
            {
                "type": kind,
                "seq": len(self.events[stream]) + 1,
                "t_mono_ns": self.clock_ns + round(at_ms * MS),
                **fields,
            }
        )
        self.events[stream].append(event)
        return event

    def control(self, kind: str, at_ms: float = 0.0, /, **fields: Any) -> None:
        """Append to the control stream."""
        self.add(Stream.CONTROL, kind, at_ms, **fields)

    def conditions(self, **changed: Any) -> None:
        """The conditions of a host, with changes."""
        self.control("conditions_recorded", conditions=CONDITIONS | changed)

    def budget(self, arm: str) -> None:
        """A budget of one row."""
        self.control(
            "memory_budgeted",
            arm=arm,
            limit_bytes=1_000_000_000,
            rows=[BudgetRow(name="weights", size_bytes=500_000_000)],
            block_tokens=32,
            block_size_bytes=1 << 20,
            blocks=64,
            agents_requested=5,
            agents_admitted=5,
        )

    def trial(self, story: TrialStory) -> None:
        """A whole trial; the clock moves past its end."""
        number = story.trial
        self.control("trial_started", trial=number, arm=story.arm, pair=story.pair, warmup=story.warmup)
        if story.footprint_bytes is not None:
            self.memory(number, story.footprint_bytes)
        timed = [timed for call in story.calls for timed in self._call(number, call)]
        for at_ms, kind, fields in sorted(timed, key=lambda item: item[0]):
            self.control(kind, at_ms, trial=number, **fields)
        if story.finished_ms is not None:
            self.control(
                "trial_finished", story.finished_ms, trial=number, status=story.status, reason=story.reason
            )
        self.clock_ns += round((story.finished_ms or 0.0) * MS) + 10 * MS

    def memory(self, trial: int | None, footprint_bytes: int, limit_bytes: int | None = 10**9) -> None:
        """A footprint sample in the samples stream."""
        self.add(
            Stream.SAMPLES,
            "memory_sampled",
            trial=trial,
            footprint_bytes=footprint_bytes,
            limit_bytes=limit_bytes,
            method="story",
        )

    def _call(self, trial: int, call: CallStory) -> list[tuple[float, str, dict[str, Any]]]:
        who = {"agent": call.agent, "call": call.call}
        end_ms = call.token_ms[-1] if call.token_ms else call.admitted_ms
        tokens = [
            (at_ms, "token_emitted", who | {"index": index, "token_id": 7})
            for index, at_ms in enumerate(call.token_ms)
        ]
        finished = who | {
            "finish_reason": "length",
            "prompt_tokens": call.prompt_tokens,
            "cached_tokens": call.cached_tokens,
            "computed_tokens": call.prompt_tokens - call.cached_tokens,
            "output_tokens": len(call.token_ms),
            "text": call.text,
        }
        return [
            (call.arrived_ms, "call_arrived", who | {"prompt_tokens": call.prompt_tokens}),
            (call.admitted_ms, "call_admitted", who | {"cached_tokens": call.cached_tokens}),
            *tokens,
            (end_ms, "call_finished", finished),
        ]


CONDITIONS: dict[str, Any] = {
    "device_model": "testhost",
    "os_name": "linux",
    "os_version": "6.1",
    "runtime_name": "story",
    "runtime_version": "1",
    "tier": "aten",
    "dtype": "float32",
    "model_name": "tiny",
    "model_digest": "sha256:" + "0" * 64,
}
