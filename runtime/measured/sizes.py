"""How many tokens a workload needs, known before anything is computed: the KV of one agent and of all."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from contract.workload import AgentPlan, CompiledWorkload, OutputPart
from runtime.engine.generator import CallKey
from runtime.measured.graph import prompt_parts
from runtime.measured.prompts import PromptBook


@dataclass(frozen=True, slots=True)
class WorkloadSizes:
    """Tokens of KV; sequences beyond the model's context are left out, they fail whatever room there is.

    at_least_tokens: the longest sequence if every call ends as early as it can: with less it cannot be run.
    agent_tokens: the longest sequence of each agent, all outputs at their full budget. shared_tokens: the
    beginning that all agents have in common.
    """

    at_least_tokens: int
    agent_tokens: tuple[int, ...]
    shared_tokens: int

    @property
    def at_most_tokens(self) -> int:
        """The longest sequence of all agents."""
        return max(1, *self.agent_tokens)

    @property
    def total_tokens(self) -> int:
        """The longest sequence of every agent, added up."""
        return max(1, sum(self.agent_tokens))

    @property
    def agents(self) -> int:
        return len(self.agent_tokens)


def workload_sizes(workload: CompiledWorkload, prompts: PromptBook, context_tokens: int) -> WorkloadSizes:
    """Sizes for a model of `context_tokens` positions."""
    calls = {
        CallKey(plan.agent, index): call for plan in workload.agents for index, call in enumerate(plan.calls)
    }
    longest_output = {key: call.max_output_tokens for key, call in calls.items()}
    # An output may be empty when the model stops at once; the sequence then has one token without KV.
    shortest_output = {key: call.max_output_tokens if call.ignore_end else 0 for key, call in calls.items()}
    most = [
        max((size for size in _sequences(plan, prompts, longest_output) if size <= context_tokens), default=0)
        for plan in workload.agents
    ]
    least = [
        max(
            (size for size in _sequences(plan, prompts, shortest_output) if size <= context_tokens), default=0
        )
        for plan in workload.agents
    ]
    return WorkloadSizes(
        at_least_tokens=max(1, *least),
        agent_tokens=tuple(most),
        shared_tokens=_common_tokens(workload, prompts),
    )


def _sequences(plan: AgentPlan, prompts: PromptBook, outputs: dict[CallKey, int]) -> Iterator[int]:
    """Tokens whose KV each call needs: its prompt and its output but for the last token."""
    own = [
        sum(
            outputs[CallKey(part.agent, part.call)]
            if isinstance(part, OutputPart)
            else len(prompts.segment(part.segment_id))
            for part in call.parts
        )
        for call in plan.calls
    ]
    made = [outputs[CallKey(plan.agent, index)] for index in range(len(plan.calls))]
    rounds = list(accumulate((size + output for size, output in zip(own, made, strict=True)), initial=0))
    for index in range(len(plan.calls)):
        first_kept = 0 if plan.keep_last_rounds is None else max(0, index - plan.keep_last_rounds)
        context = rounds[index] - rounds[first_kept] + (own[0] if first_kept else 0)
        yield context + own[index] + max(0, made[index] - 1)


def _common_tokens(workload: CompiledWorkload, prompts: PromptBook) -> int:
    beginnings = [_beginning(plan, prompts) for plan in workload.agents]
    common = 0
    for position in zip(*beginnings, strict=False):
        if len(set(position)) > 1:
            break
        common += 1
    return common if len(beginnings) > 1 else 0


def _beginning(plan: AgentPlan, prompts: PromptBook) -> Sequence[int]:
    """The first call's prompt up to the first output of another call."""
    tokens: list[int] = []
    for part in prompt_parts(plan, 0):
        if isinstance(part, OutputPart):
            break
        tokens += prompts.segment(part.segment_id)
    return tokens
