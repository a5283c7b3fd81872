"""A compiled workload: text segments and token budgets as a task graph. No template, no file, no network.

The controller (or the agent) compiles; every target runs the same graph (decisions.md 11).
"""

from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt

from contract.ids import Name
from contract.model import ContractModel


class Sampling(ContractModel):
    """How the next token is chosen. temperature 0 is greedy; the seed counts only above 0."""

    temperature: Annotated[float, Field(ge=0, le=10)] = 0.0
    top_k: Annotated[int, Field(ge=0)] = 0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    min_p: Annotated[float, Field(ge=0, lt=1)] = 0.0
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0


class Segment(ContractModel):
    """A piece of prompt text, tokenised on its own so that sharing never depends on its neighbours.

    With `tokens` set the token list is cut to exactly that many, and repeated if it is shorter.
    """

    segment_id: Name
    text: Annotated[str, Field(min_length=1, max_length=1_000_000)]
    tokens: PositiveInt | None = None


class SegmentPart(ContractModel):
    """The tokens of one segment."""

    kind: Literal["segment"] = "segment"
    segment_id: Name


class OutputPart(ContractModel):
    """The tokens that an earlier call of another agent wrote (chains, fan-in)."""

    kind: Literal["output"] = "output"
    agent: Name
    call: Annotated[int, Field(ge=0)]


Part = Annotated[SegmentPart | OutputPart, Field(discriminator="kind")]


class ToolWait(ContractModel):
    """The pause before a call, while a tool works. Its result is among the call's parts."""

    tool: Name
    wait_s: Annotated[float, Field(ge=0, le=3600)] = 0.0


class CallRef(ContractModel):
    """Names one call of one agent."""

    agent: Name
    call: Annotated[int, Field(ge=0)]


class Call(ContractModel):
    """One generation. Its prompt is the agent's context so far, then `parts`.

    The context after a call is its prompt and its output: a conversation only grows,
    unless `AgentPlan.keep_last_rounds` trims it.
    """

    parts: Annotated[list[Part], Field(min_length=1, max_length=256)]
    max_output_tokens: Annotated[int, Field(ge=1, le=131_072)]
    ignore_end: bool = False
    """Generate all `max_output_tokens` even when the model says it is done: equal work in every arm."""
    sampling: Sampling = Sampling()
    tool_wait: ToolWait | None = None
    after: list[CallRef] = []
    """Calls that must have finished first, beside the agent's own previous call and every OutputPart."""


class AgentPlan(ContractModel):
    """One agent: its calls in order. `priority` higher is served first."""

    agent: Name
    calls: Annotated[list[Call], Field(min_length=1, max_length=1024)]
    priority: Annotated[int, Field(ge=0, le=9)] = 5
    retries: Annotated[int, Field(ge=0, le=2)] = 0
    keep_last_rounds: PositiveInt | None = None
    """Keep the first call's parts and the last N rounds; None keeps everything."""


class CompiledWorkload(ContractModel):
    """A task graph, complete: every segment and call that it names is in it."""

    name: Name
    version: PositiveInt
    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    params: dict[str, Any]
    variant: str = ""
    """Names the cell of a sweep, e.g. `agents=4`; empty without a sweep."""
    segments: Annotated[list[Segment], Field(min_length=1, max_length=4096)]
    agents: Annotated[list[AgentPlan], Field(min_length=1, max_length=256)]
    repeat_for_s: Annotated[float, Field(gt=0, le=86_400)] | None = None
    """Run the graph again and again in one trial until this much time has passed (soak)."""


def largest_sequence_tokens(workload: CompiledWorkload) -> int | None:
    """Tokens of the longest context that any agent reaches, outputs at their full budget.

    None when a segment has no token budget: then only the tokenizer can tell.
    """
    sizes = {segment.segment_id: segment.tokens for segment in workload.segments}
    outputs = {
        (plan.agent, i): call.max_output_tokens
        for plan in workload.agents
        for i, call in enumerate(plan.calls)
    }
    longest = 0
    for plan in workload.agents:
        context = 0
        for call in plan.calls:
            for part in call.parts:
                size = sizes[part.segment_id] if part.kind == "segment" else outputs[part.agent, part.call]
                if size is None:
                    return None
                context += size
            context += call.max_output_tokens
        longest = max(longest, context)
    return longest
