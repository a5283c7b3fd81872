"""Executes a workload's task graph: what happened goes in, what to do comes out. No clock, no tokens.

The caller reports ends of calls and asks `decide(now_ns)`; it carries out the decisions in their order.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from contract.failures import FAILURES, FailureReason, Fault
from contract.workload import AgentPlan, Call, CompiledWorkload, OutputPart, Part, call_dependencies
from runtime.engine.generator import CallKey

AgentStatus = Literal["completed", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class StartRound:
    """All agents begin again with empty contexts; outputs of the round before are void (soak)."""

    number: int


@dataclass(frozen=True, slots=True)
class StartToolWait:
    """The agent's tool begins to work."""

    key: CallKey
    tool: str


@dataclass(frozen=True, slots=True)
class FinishToolWait:
    """The tool's time is over."""

    key: CallKey
    tool: str


@dataclass(frozen=True, slots=True)
class RetryCall:
    """The call failed and is tried again; its start follows. `retry` counts from 1 for the agent."""

    key: CallKey
    retry: int
    reason: FailureReason


@dataclass(frozen=True, slots=True)
class StartCall:
    """The call is ready. `parts` are its whole prompt, the agent's own context included."""

    key: CallKey
    plan: AgentPlan
    parts: tuple[Part, ...]

    @property
    def call(self) -> Call:
        """What the workload says of this call."""
        return self.plan.calls[self.key.call]


@dataclass(frozen=True, slots=True)
class EndAgent:
    """Nothing more comes from this agent."""

    agent: str
    status: AgentStatus
    retries: int
    reason: FailureReason | None


Recorded = StartToolWait | FinishToolWait | RetryCall | EndAgent
"""Decisions that are events themselves; a start of a call or a round needs the engine."""
Decision = StartRound | StartCall | Recorded


class _Phase(Enum):
    BLOCKED = "waits for other calls"
    TOOL = "waits for its tool"
    RETRY = "failed and may try again"
    RUNNING = "its call runs"
    ROUND_DONE = "waits for the next round"
    ENDED = "ended"


@dataclass(slots=True)
class _Agent:
    plan: AgentPlan
    next_call: int = 0
    phase: _Phase = _Phase.BLOCKED
    tool_until_ns: int = 0
    retries: int = 0
    reason: FailureReason | None = None

    @property
    def key(self) -> CallKey:
        return CallKey(self.plan.agent, self.next_call)


@dataclass(slots=True)
class GraphProgress:
    """How far one trial has come with its workload; it began at `started_ns`."""

    workload: CompiledWorkload
    started_ns: int
    _agents: dict[str, _Agent] = field(init=False)
    _finished: set[tuple[str, int]] = field(init=False, default_factory=set)
    _round: int = field(init=False, default=1)

    def __post_init__(self) -> None:
        """Every agent stands before its first call."""
        self._agents = {plan.agent: _Agent(plan) for plan in self.workload.agents}

    @property
    def is_done(self) -> bool:
        """True once every agent has ended."""
        return all(agent.phase is _Phase.ENDED for agent in self._agents.values())

    @property
    def failure(self) -> FailureReason | None:
        """Why the first agent (in the workload's order) failed; None while none did."""
        return next((agent.reason for agent in self._agents.values() if agent.reason is not None), None)

    def next_deadline_ns(self) -> int | None:
        """When the earliest tool wait ends; None without one."""
        waits = [agent.tool_until_ns for agent in self._agents.values() if agent.phase is _Phase.TOOL]
        return min(waits, default=None)

    def gives_way(self, agent: str) -> bool:
        """True when the agent cannot go on by itself: it ended, or waits for others."""
        return self._agents[agent].phase in (_Phase.ENDED, _Phase.ROUND_DONE, _Phase.BLOCKED)

    def call_finished(self, key: CallKey) -> None:
        """The call has its output; the agent moves on to its next call."""
        agent = self._running(key)
        self._finished.add(key)
        agent.next_call += 1
        done = agent.next_call == len(agent.plan.calls)
        agent.phase = _Phase.ROUND_DONE if done else _Phase.BLOCKED

    def call_failed(self, key: CallKey, reason: FailureReason) -> None:
        """The call has no output. Only a fault of the runtime may be different the next time."""
        agent = self._running(key)
        agent.reason = reason
        agent.phase = _Phase.RETRY

    def cancel(self) -> list[EndAgent]:
        """Ends every agent that has not ended."""
        return [
            self._end(agent, "cancelled")
            for agent in self._agents.values()
            if agent.phase is not _Phase.ENDED
        ]

    def decide(self, now_ns: int) -> list[Decision]:
        """What to do now, in order; empty when calls or tools must end first."""
        decisions: list[Decision] = []
        while step := [
            decision for agent in self._agents.values() for decision in self._advance(agent, now_ns)
        ]:
            decisions += step
        decisions += self._close_round(now_ns)
        if decisions and isinstance(decisions[-1], StartRound):
            decisions += self.decide(now_ns)
        return decisions

    def _advance(self, agent: _Agent, now_ns: int) -> Iterator[Decision]:
        if agent.phase is _Phase.RETRY:
            decision = self._retry_or_end(agent)
            yield decision
            if isinstance(decision, RetryCall):
                yield self._start(agent)
        elif agent.phase is _Phase.TOOL and now_ns >= agent.tool_until_ns:
            yield FinishToolWait(agent.key, self._tool(agent))
            yield self._start(agent)
        elif agent.phase is _Phase.ROUND_DONE and self.workload.repeat_for_s is None:
            yield self._end(agent, "completed")
        elif agent.phase is _Phase.BLOCKED:
            yield from self._unblock(agent, now_ns)

    def _unblock(self, agent: _Agent, now_ns: int) -> Iterator[Decision]:
        missing = call_dependencies(agent.plan, agent.next_call) - self._finished
        for needed, _ in sorted(missing):
            if self._agents[needed].phase is _Phase.ENDED:
                # What it waits for will never be there.
                agent.reason = self._agents[needed].reason
                yield self._end(agent, "failed")
                return
        if missing:
            return
        wait = agent.plan.calls[agent.next_call].tool_wait
        if wait is None:
            yield self._start(agent)
            return
        agent.phase = _Phase.TOOL
        agent.tool_until_ns = now_ns + round(wait.wait_s * 1e9)
        yield StartToolWait(agent.key, wait.tool)

    def _start(self, agent: _Agent) -> StartCall:
        agent.phase = _Phase.RUNNING
        return StartCall(agent.key, agent.plan, tuple(prompt_parts(agent.plan, agent.next_call)))

    def _retry_or_end(self, agent: _Agent) -> RetryCall | EndAgent:
        reason = agent.reason
        if (
            reason is None
            or FAILURES[reason].fault is not Fault.RUNTIME
            or agent.retries >= agent.plan.retries
        ):
            return self._end(agent, "failed")
        agent.retries += 1
        agent.reason = None
        agent.phase = _Phase.RUNNING
        return RetryCall(agent.key, agent.retries, reason)

    def _end(self, agent: _Agent, status: AgentStatus) -> EndAgent:
        agent.phase = _Phase.ENDED
        return EndAgent(agent.plan.agent, status, agent.retries, agent.reason if status == "failed" else None)

    def _close_round(self, now_ns: int) -> list[Decision]:
        """The next round of a soak, or the end of its agents; nothing while an agent is within a round."""
        waiting = [agent for agent in self._agents.values() if agent.phase is _Phase.ROUND_DONE]
        ended = sum(agent.phase is _Phase.ENDED for agent in self._agents.values())
        if not waiting or len(waiting) + ended < len(self._agents):
            return []
        if now_ns - self.started_ns >= (self.workload.repeat_for_s or 0) * 1e9:
            return [self._end(agent, "completed") for agent in waiting]
        self._round += 1
        self._finished.clear()
        for agent in waiting:
            agent.next_call, agent.phase = 0, _Phase.BLOCKED
        return [StartRound(self._round)]

    def _running(self, key: CallKey) -> _Agent:
        agent = self._agents[key.agent]
        if agent.phase is not _Phase.RUNNING or agent.key != key:
            raise ValueError(f"call {key.call} of agent {key.agent} is not running")
        return agent

    def _tool(self, agent: _Agent) -> str:
        wait = agent.plan.calls[agent.next_call].tool_wait
        return wait.tool if wait else ""


def prompt_parts(plan: AgentPlan, index: int) -> Iterator[Part]:
    """The prompt of call `index`: the agent's context, trimmed to `keep_last_rounds`, then its own parts.

    A round is a call's parts and its output. Trimming keeps the first call's parts: the system prompt.
    """
    first_kept = 0 if plan.keep_last_rounds is None else max(0, index - plan.keep_last_rounds)
    if first_kept > 0:
        yield from plan.calls[0].parts
    for earlier in range(first_kept, index):
        yield from plan.calls[earlier].parts
        yield OutputPart(agent=plan.agent, call=earlier)
    yield from plan.calls[index].parts
