"""The tracks of one arm: its trials, its agents, its batches, its blocks, its counters."""

from dataclasses import dataclass, field

from client.trace.agent_track import AgentTrack
from client.trace.perfetto_file import PerfettoFile, Track, Unit
from contract.events import BatchExecuted, BatchMember, KvSampled


@dataclass(slots=True)
class ArmTracks:
    """All trials of `arm` lie on the same tracks, one after the other."""

    file: PerfettoFile
    arm: str
    trials: Track = field(init=False)
    batches: Track = field(init=False)
    blocks: Track = field(init=False)
    agents: dict[str, AgentTrack] = field(init=False, default_factory=dict)
    _agents: Track = field(init=False)
    _kv: Track = field(init=False)
    _counters: dict[str, Track] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Declares the tracks that every arm has."""
        self.trials = self.file.track(f"arm {self.arm}", self.file.root)
        self._agents = self.file.track("agents", self.trials)
        self.batches = self.file.track("batches", self.trials)
        self.blocks = self.file.track("block events", self.trials)
        self._kv = self.file.track("KV pool", self.trials)

    def agent(self, name: str) -> AgentTrack:
        """The agent's track, declared when it is first heard of."""
        if name not in self.agents:
            self.agents[name] = AgentTrack(self.file, self.file.track(f"agent {name}", self._agents))
        return self.agents[name]

    def ran(self, event: BatchExecuted) -> None:
        """One step of the model as a slice that ends where the event stands."""
        members = {"decode": event.decode, "prefill": event.prefill}
        begin_ns = max(event.t_mono_ns - event.duration_ns, self.batches.last_ns)
        self.file.begin(
            self.batches,
            begin_ns,
            _batch_name(event),
            {"trial": event.trial, "step": event.step}
            | {name: [_member_text(each) for each in found] for name, found in members.items() if found},
        )
        self.file.end(self.batches, event.t_mono_ns)

    def sampled(self, event: KvSampled) -> None:
        """The pool and the queue after a step."""
        for name, value in (
            ("blocks in use", event.blocks_used),
            ("blocks cached", event.blocks_cached),
            ("blocks free", event.blocks_free),
            ("sequences running", event.sequences_running),
            ("sequences waiting", event.sequences_waiting),
        ):
            if name not in self._counters:
                self._counters[name] = self.file.counter(name, self._kv, Unit.COUNT)
            self.file.value(self._counters[name], event.t_mono_ns, value)

    def trial_ended(self, t_ns: int) -> None:
        """Its agents are done and its pool is gone."""
        for agent in self.agents.values():
            agent.leave(t_ns)
        for counter in self._counters.values():
            self.file.value(counter, t_ns, 0)
        if self.trials.open_slices:
            self.file.end(self.trials, t_ns)


def _batch_name(event: BatchExecuted) -> str:
    parts = []
    if event.decode:
        parts.append(f"decode of {len(event.decode)}")
    if event.prefill:
        parts.append(f"prefill of {sum(member.tokens for member in event.prefill)} tokens")
    return ", ".join(parts) or "empty"


def _member_text(member: BatchMember) -> str:
    tokens = "token" if member.tokens == 1 else "tokens"
    return f"{member.agent}, call {member.call}: {member.tokens} {tokens}"
