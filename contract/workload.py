"""A compiled workload: text segments and token budgets as a task graph. No template, no file, no network.

The controller (or the agent) compiles; every target runs the same graph.
"""

from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator

from contract.ids import Name
from contract.model import ContractModel

MAX_SEGMENT_TOKENS: Final = 1_000_000
MAX_WORKLOAD_TOKENS: Final = 8_000_000
"""Of all segments together: every target holds their token ids, so a budget is memory there."""
MAX_SEGMENT_CHARACTERS: Final = 1_000_000
MAX_WORKLOAD_CHARACTERS: Final = 8_000_000
"""Of all segments together."""
MAX_SEGMENTS: Final = 4096
MAX_AGENTS: Final = 256
MAX_CALLS: Final = 1024
"""Of one agent."""
MAX_WORKLOAD_CALLS: Final = 16_384
"""Of all agents together; checked like the next before anything is built of them."""
MAX_PARTS: Final = 256
"""Of one call's prompt; as many other calls may be named in `after`."""
MAX_WORKLOAD_PARTS: Final = 262_144
"""Parts and references of all calls together."""
MAX_VARIANT_CHARACTERS: Final = 200

SegmentTokens = Annotated[int, Field(ge=1, le=MAX_SEGMENT_TOKENS)]
OutputTokens = Annotated[int, Field(ge=1, le=131_072)]
Version = Annotated[int, Field(ge=1, lt=2**31)]
KeptRounds = Annotated[int, Field(ge=1, le=MAX_CALLS)]
CallNumber = Annotated[int, Field(ge=0, lt=MAX_CALLS)]
RepeatForSeconds = Annotated[float, Field(gt=0, le=86_400)]


class Sampling(ContractModel):
    """How the next token is chosen. temperature 0 is greedy; the seed counts only above 0."""

    temperature: Annotated[float, Field(ge=0, le=10)] = 0.0
    top_k: Annotated[int, Field(ge=0, lt=2**31)] = 0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    min_p: Annotated[float, Field(ge=0, lt=1)] = 0.0
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0


class Segment(ContractModel):
    """A piece of prompt text, tokenised on its own so that sharing never depends on its neighbours.

    With `tokens` set the token list is cut to exactly that many, and repeated if it is shorter.
    """

    segment_id: Name
    text: Annotated[str, Field(min_length=1, max_length=MAX_SEGMENT_CHARACTERS)]
    tokens: SegmentTokens | None = None


class SegmentPart(ContractModel):
    """The tokens of one segment."""

    kind: Literal["segment"] = "segment"
    segment_id: Name


class OutputPart(ContractModel):
    """The tokens that an earlier call of another agent wrote (chains, fan-in)."""

    kind: Literal["output"] = "output"
    agent: Name
    call: CallNumber


Part = Annotated[SegmentPart | OutputPart, Field(discriminator="kind")]


class ToolWait(ContractModel):
    """The pause before a call, while a tool works. Its result is among the call's parts."""

    tool: Name
    wait_s: Annotated[float, Field(ge=0, le=3600)] = 0.0


class CallRef(ContractModel):
    """Names one call of one agent."""

    agent: Name
    call: CallNumber


class Call(ContractModel):
    """One generation. Its prompt is the agent's context so far, then `parts`.

    The context after a call is its prompt and its output: a conversation only grows,
    unless `AgentPlan.keep_last_rounds` trims it. An end-of-turn token that stops a call is not part
    of its output; with `ignore_end` such tokens are ordinary output.
    """

    parts: Annotated[list[Part], Field(min_length=1, max_length=MAX_PARTS)]
    max_output_tokens: OutputTokens
    ignore_end: bool = False
    """Generate all `max_output_tokens` even when the model says it is done: equal work in every arm."""
    sampling: Sampling = Sampling()
    tool_wait: ToolWait | None = None
    after: Annotated[list[CallRef], Field(max_length=MAX_PARTS)] = []
    """Calls that must have finished first, beside the agent's own previous call and every OutputPart."""


class AgentPlan(ContractModel):
    """One agent: its calls in order. `priority` higher is served first."""

    agent: Name
    calls: Annotated[list[Call], Field(min_length=1, max_length=MAX_CALLS)]
    priority: Annotated[int, Field(ge=0, le=9)] = 5
    retries: Annotated[int, Field(ge=0, le=2)] = 0
    keep_last_rounds: KeptRounds | None = None
    """Keep the first call's parts and the last N rounds; None keeps everything."""


class CompiledWorkload(ContractModel):
    """A task graph, complete: every segment and call that it names is in it."""

    name: Name
    version: Version
    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    params: dict[str, Any]
    variant: Annotated[str, Field(max_length=MAX_VARIANT_CHARACTERS)] = ""
    """Names the cell of a sweep, e.g. `agents=4`; empty without a sweep."""
    segments: Annotated[list[Segment], Field(min_length=1, max_length=MAX_SEGMENTS)]
    agents: Annotated[list[AgentPlan], Field(min_length=1, max_length=MAX_AGENTS)]
    repeat_for_s: RepeatForSeconds | None = None
    """Run the graph again and again in one trial until this much time has passed (soak)."""

    @model_validator(mode="after")
    def _graph_is_closed(self) -> "CompiledWorkload":
        segments = {segment.segment_id for segment in self.segments}
        if len(segments) != len(self.segments):
            raise ValueError("segments: two segments have the same id")
        tokens = sum(segment.tokens or 0 for segment in self.segments)
        if tokens > MAX_WORKLOAD_TOKENS:
            raise ValueError(f"segments: {tokens} tokens together, at most {MAX_WORKLOAD_TOKENS} are allowed")
        _require_size(self)
        calls = {(plan.agent, index) for plan in self.agents for index in range(len(plan.calls))}
        if len({plan.agent for plan in self.agents}) != len(self.agents):
            raise ValueError("agents: two agents have the same name")
        for plan in self.agents:
            for index, call in enumerate(plan.calls):
                _require_known(f"agents.{plan.agent}.calls.{index}", call, segments, calls)
        _require_order(self.agents)
        return self


def _require_size(workload: CompiledWorkload) -> None:
    calls = [call for plan in workload.agents for call in plan.calls]
    for count, limit, what in (
        (sum(len(segment.text) for segment in workload.segments), MAX_WORKLOAD_CHARACTERS, "characters"),
        (len(calls), MAX_WORKLOAD_CALLS, "calls"),
        (sum(len(call.parts) + len(call.after) for call in calls), MAX_WORKLOAD_PARTS, "parts of calls"),
    ):
        if count > limit:
            raise ValueError(f"the workload has {count} {what}, at most {limit} are allowed")


def _require_known(where: str, call: Call, segments: set[str], calls: set[tuple[str, int]]) -> None:
    for part in call.parts:
        if part.kind == "segment" and part.segment_id not in segments:
            raise ValueError(f"{where}: no segment is named {part.segment_id!r}")
        if part.kind == "output" and (part.agent, part.call) not in calls:
            raise ValueError(f"{where}: agent {part.agent!r} has no call {part.call}")
    for ref in call.after:
        if (ref.agent, ref.call) not in calls:
            raise ValueError(f"{where}: agent {ref.agent!r} has no call {ref.call}")


def call_dependencies(plan: AgentPlan, index: int) -> set[tuple[str, int]]:
    """The calls that must have finished before call `index` of the agent may start."""
    call = plan.calls[index]
    needed = {(ref.agent, ref.call) for ref in call.after}
    needed |= {(part.agent, part.call) for part in call.parts if part.kind == "output"}
    if index > 0:
        needed.add((plan.agent, index - 1))
    return needed


def _require_order(agents: list[AgentPlan]) -> None:
    graph = {(plan.agent, i): call_dependencies(plan, i) for plan in agents for i in range(len(plan.calls))}
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        circle = " <- ".join(f"{agent}/{call}" for agent, call in error.args[1])
        raise ValueError(f"agents: these calls wait for each other: {circle}") from None


def largest_sequence_tokens(workload: CompiledWorkload) -> int:
    """Tokens that the longest context certainly reaches: a pool smaller than this can never run it.

    A lower bound, since only the tokenizer knows a segment without budget (counted as 1 token) and
    only the model knows where it stops (1 token unless `ignore_end`). The runtime checks exactly.
    """
    segment_tokens = {segment.segment_id: segment.tokens or 1 for segment in workload.segments}
    output_tokens = {
        (plan.agent, index): call.max_output_tokens if call.ignore_end else 1
        for plan in workload.agents
        for index, call in enumerate(plan.calls)
    }
    longest = 0
    for plan in workload.agents:
        context = 0
        for index, call in enumerate(plan.calls):
            for part in call.parts:
                context += (
                    segment_tokens[part.segment_id]
                    if part.kind == "segment"
                    else output_tokens[part.agent, part.call]
                )
            context += output_tokens[plan.agent, index]
            if plan.keep_last_rounds is None or index == 0:
                longest = max(longest, context)
    return longest
