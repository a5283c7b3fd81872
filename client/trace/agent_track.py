"""One LLM agent on its track: its tools and calls; within a call queued, prefill, decode and preempted."""

from dataclasses import dataclass
from typing import Final

from client.trace.perfetto_file import NO_DETAILS, Details, PerfettoFile, Track

QUEUED: Final = "queued"
PREFILL: Final = "prefill"
DECODE: Final = "decode"
PREEMPTED: Final = "preempted"


@dataclass(slots=True)
class AgentTrack:
    """Where the agent stands; `state` is the open slice within its call, None between calls."""

    file: PerfettoFile
    track: Track
    state: str | None = None

    def arrived(self, t_ns: int, call: int, details: Details) -> None:
        """A call is known and waits; one that was left open is ended: the events of its end were lost."""
        self.leave(t_ns)
        self.file.begin(self.track, t_ns, f"call {call}", details)
        self._enter(t_ns, QUEUED)

    def computing(self, t_ns: int, details: Details) -> None:
        """Its prompt, or after a preemption what was lost of it, goes through the model."""
        self._move(t_ns, PREFILL, details)

    def token(self, t_ns: int) -> None:
        """A token was made: what follows is decode."""
        if self.state != DECODE:
            self._move(t_ns, DECODE)

    def preempted(self, t_ns: int, details: Details) -> None:
        """It gave its blocks back and waits again."""
        self._move(t_ns, PREEMPTED, details)

    def ended(self, t_ns: int, details: Details) -> None:
        """The call has its output, or none."""
        if self.state is not None:
            self.file.end(self.track, t_ns)
            self.file.end(self.track, t_ns, details)
            self.state = None

    def tool_started(self, t_ns: int, tool: str) -> None:
        """It waits for a tool."""
        self.leave(t_ns)
        self.file.begin(self.track, t_ns, f"tool wait: {tool}")

    def leave(self, t_ns: int) -> None:
        """Ends what is open."""
        while self.track.open_slices:
            self.file.end(self.track, t_ns)
        self.state = None

    def instant(self, t_ns: int, name: str, details: Details = NO_DETAILS) -> None:
        """Something that took no time."""
        self.file.instant(self.track, t_ns, name, details)

    def _move(self, t_ns: int, state: str, details: Details = NO_DETAILS) -> None:
        if self.state is not None:
            self.file.end(self.track, t_ns)
            self._enter(t_ns, state, details)

    def _enter(self, t_ns: int, state: str, details: Details = NO_DETAILS) -> None:
        self.file.begin(self.track, t_ns, state, details)
        self.state = state
