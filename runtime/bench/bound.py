"""The least time that the work can take at the machine's rates. Pure: shapes and rates in, seconds out.

Prefill costs the operations of its tokens, decode the bytes that its steps must read. What is counted, and
that attention is counted at the rate of matrix products, is said at each function.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.model.config import ModelConfig


@dataclass(frozen=True, slots=True)
class CallWork:
    """One call, in tokens; kept_tokens: those of its prompt that its agent computed before."""

    prompt_tokens: int
    output_tokens: int
    kept_tokens: int


@dataclass(frozen=True, slots=True)
class Work:
    """Every agent's calls in order, and the tokens that all prompts begin with."""

    agents: tuple[tuple[CallWork, ...], ...]
    shared_tokens: int


@dataclass(frozen=True, slots=True)
class Costs:
    """step_bytes: weights that one step reads; token_bytes: KV of a token."""

    config: ModelConfig
    step_bytes: int
    token_bytes: int
    read_bytes_per_s: float
    product_flops: float


def agent_work(calls: Sequence[tuple[int, int]]) -> tuple[CallWork, ...]:
    """From (prompt, output) tokens of an agent's calls in order, each prompt growing out of the one before.

    The last output token of a call was never fed to the model: the next call has to compute it.
    """
    made = []
    before = 0
    for prompt, output in calls:
        made.append(CallWork(prompt, output, min(before, prompt)))
        before = prompt + output - 1
    return tuple(made)


def paged_s(work: Work, costs: Costs) -> float:
    """The shared prefix computed once, each agent's own tokens once; agents decode their n-th calls together.

    A step reads the weights once, the KV of the shared prefix once and each agent's own KV.
    """
    shared = work.shared_tokens
    seconds = _prefill_s([(0, shared)], costs)
    for calls in work.agents:
        spans = [(max(call.kept_tokens, shared), call.prompt_tokens) for call in calls]
        seconds += _prefill_s(spans, costs)
    for number in range(max(map(len, work.agents))):
        together = [calls[number] for calls in work.agents if number < len(calls)]
        seconds += _decode_s(together, shared, costs)
    return seconds


def serial_cached_s(work: Work, costs: Costs) -> float:
    """As paged_s, but every call decodes alone and reads all of its KV."""
    shared = work.shared_tokens
    seconds = _prefill_s([(0, shared)], costs)
    for calls in work.agents:
        seconds += _prefill_s([(max(call.kept_tokens, shared), call.prompt_tokens) for call in calls], costs)
        seconds += sum(_decode_s([call], 0, costs) for call in calls)
    return seconds


def serial_s(work: Work, costs: Costs) -> float:
    """Every call computes its whole prompt and decodes alone."""
    return sum(
        _prefill_s([(0, call.prompt_tokens)], costs) + _decode_s([call], 0, costs)
        for calls in work.agents
        for call in calls
    )


def step_s(contexts: Sequence[int], shared_tokens: int, costs: Costs) -> float:
    """Seconds in which the bytes of one decode step can be read. contexts: KV tokens of each sequence."""
    once = shared_tokens if len(contexts) > 1 else 0
    tokens = once + sum(max(0, context - once) for context in contexts)
    return (costs.step_bytes + tokens * costs.token_bytes) / costs.read_bytes_per_s


def _decode_s(calls: Sequence[CallWork], shared_tokens: int, costs: Costs) -> float:
    """The first token of a call comes from its prefill; the others each need a step."""
    seconds = 0.0
    for made in range(1, max(call.output_tokens for call in calls)):
        contexts = [call.prompt_tokens + made for call in calls if made < call.output_tokens]
        seconds += step_s(contexts, shared_tokens, costs)
    return seconds


def _prefill_s(spans: Sequence[tuple[int, int]], costs: Costs) -> float:
    """Operations of the positions from start to stop: every layer's linears, q.k and p.v over all before it.

    The head is left out: it runs for one position of a call.
    """
    config = costs.config
    projections = config.hidden * (2 * config.q_width + 2 * config.kv_width)
    per_token = 2.0 * config.layers * (projections + 3 * config.hidden * config.ffn)
    per_pair = 4.0 * config.layers * config.q_width
    operations = 0.0
    for start, stop in spans:
        tokens = max(0, stop - start)
        pairs = (stop * (stop + 1) - start * (start + 1)) / 2 if tokens else 0.0
        operations += tokens * per_token + pairs * per_pair
    return operations / costs.product_flops
