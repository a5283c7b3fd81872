"""What is asked of a generator, and the facts that it reports; all generators speak this."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from contract.workload import Sampling
from runtime.errors import RuntimeFault
from runtime.model.sampler import SamplingParams, SequenceSampler

FinishReason = Literal["stop", "length", "cancelled"]


class CallKey(NamedTuple):
    """One call of one agent; a soak uses it again in every round."""

    agent: str
    call: int


@dataclass(frozen=True, slots=True)
class CallRequest:
    """One generation. stop_tokens end it and are not part of its output; none: all tokens are made."""

    key: CallKey
    prompt: tuple[int, ...]
    max_output_tokens: int
    stop_tokens: frozenset[int]
    sampling: Sampling
    priority: int


@dataclass(frozen=True, slots=True)
class Admitted:
    """The call left the queue; `cached_tokens` of its prompt were found."""

    key: CallKey
    t_ns: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Preempted:
    """Memory ran short: the call gave its blocks back."""

    key: CallKey
    t_ns: int
    dropped_tokens: int


@dataclass(frozen=True, slots=True)
class Resumed:
    """A preempted call goes on; `recomputed_tokens` are missing again."""

    key: CallKey
    t_ns: int
    recomputed_tokens: int


@dataclass(frozen=True, slots=True)
class TokenMade:
    """One output token."""

    key: CallKey
    t_ns: int
    index: int
    token_id: int


@dataclass(frozen=True, slots=True)
class CallDone:
    """The call has its output. computed_tokens: prompt tokens that went through the model, repeats too."""

    key: CallKey
    t_ns: int
    finish_reason: FinishReason
    output: tuple[int, ...]
    prompt_tokens: int
    cached_tokens: int
    computed_tokens: int


@dataclass(frozen=True, slots=True)
class CallBroke:
    """The call ended without an output."""

    key: CallKey
    t_ns: int
    error: RuntimeFault


@dataclass(frozen=True, slots=True)
class StepRan:
    """One step of the model: tokens of each call that decoded, and of each that prefilled."""

    t_ns: int
    step: int
    decode: tuple[tuple[CallKey, int], ...]
    prefill: tuple[tuple[CallKey, int], ...]
    duration_ns: int


Fact = Admitted | Preempted | Resumed | TokenMade | CallDone | CallBroke | StepRan


@dataclass(frozen=True, slots=True)
class KVState:
    """Blocks by place and sequences by state; total = used + cached + free."""

    blocks_total: int
    blocks_used: int
    blocks_cached: int
    blocks_free: int
    sequences_running: int
    sequences_waiting: int


class Generator(Protocol):
    """Computes calls, step by step."""

    def check(self, request: CallRequest) -> None:
        """Raises the RuntimeFault for which the call can never be computed; changes nothing."""
        ...

    def submit(self, request: CallRequest) -> None:
        """Takes a call that passed `check`."""
        ...

    @property
    def has_work(self) -> bool:
        """True when `step` would compute something."""
        ...

    def step(self) -> list[Fact]:
        """One step of the model, in the order in which things happened."""
        ...

    def kv_state(self) -> KVState | None:
        """The pool after the last step; None for a generator without one."""
        ...

    def cancel(self) -> list[Fact]:
        """Ends every call at once."""
        ...

    def close(self) -> None:
        """Frees the tensors; the generator cannot be used afterwards."""
        ...


def output_before_stop(tokens: Sequence[int], stop_tokens: frozenset[int]) -> tuple[int, ...]:
    """The generated tokens without the one that ended them."""
    ended = bool(tokens) and tokens[-1] in stop_tokens
    return tuple(tokens[:-1] if ended else tokens)


def make_sampler(request: CallRequest) -> SequenceSampler:
    """The call's own parameters and random stream."""
    key = request.key
    return SequenceSampler(f"{key.agent}/{key.call}", SamplingParams.parse(request.sampling.model_dump()))
