"""One call being generated, as the scheduler sees it: tokens, a block table, a state."""

from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final

from runtime.errors import RuntimeFault
from runtime.kv.block_table import BlockTable
from runtime.kv.prefix_cache import PrefixMatch
from runtime.kv.prefix_node import PrefixNode
from runtime.schedule.errors import InvalidTransitionError


class Status(Enum):
    """Where a sequence stands; the terminal ones are derived from TRANSITIONS."""

    WAITING = "waiting"
    PENDING_PREFIX = "pending_prefix"
    PREFILL = "prefill"
    DECODE = "decode"
    PREEMPTED = "preempted"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Cause(Enum):
    """Why a sequence moves."""

    FOLLOWED = "made to follow a leader"
    LEADER_DONE = "released by its leader"
    ADMITTED = "admitted"
    PROMPT_COMPUTED = "past its prompt"
    PREEMPTED = "preempted"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"


_LIVE = (Status.WAITING, Status.PENDING_PREFIX, Status.PREFILL, Status.DECODE, Status.PREEMPTED)

TRANSITIONS: Final = MappingProxyType(
    {
        (Status.WAITING, Cause.FOLLOWED): Status.PENDING_PREFIX,
        (Status.PREEMPTED, Cause.FOLLOWED): Status.PENDING_PREFIX,
        (Status.PENDING_PREFIX, Cause.LEADER_DONE): Status.WAITING,
        (Status.WAITING, Cause.ADMITTED): Status.PREFILL,
        (Status.PREEMPTED, Cause.ADMITTED): Status.PREFILL,
        (Status.PREFILL, Cause.PROMPT_COMPUTED): Status.DECODE,
        (Status.PREFILL, Cause.PREEMPTED): Status.PREEMPTED,
        (Status.DECODE, Cause.PREEMPTED): Status.PREEMPTED,
        (Status.DECODE, Cause.FINISHED): Status.FINISHED,
        **{(status, Cause.FAILED): Status.FAILED for status in _LIVE},
        **{(status, Cause.CANCELLED): Status.CANCELLED for status in _LIVE},
    }
)

TERMINAL: Final = frozenset(Status) - {status for status, _ in TRANSITIONS}
RUNNING: Final = frozenset({Status.PREFILL, Status.DECODE})
"""States that hold blocks and take part in batches."""


@dataclass(frozen=True, slots=True)
class CallSpec:
    """What a caller asks for. `sampling` is opaque here: the engine's handle, kept over a preemption.

    The sequence finishes by itself after `max_output_tokens` or with a token of `stop_tokens` as its last.
    Higher `priority` goes first; waiting raises it.
    """

    sequence: int
    agent: str
    call: int
    prompt: tuple[int, ...]
    max_output_tokens: int
    stop_tokens: frozenset[int] = frozenset()
    priority: int = 0
    sampling: object = None

    def __post_init__(self) -> None:
        """ValueError for an empty prompt or no output."""
        if not self.prompt or self.max_output_tokens < 1:
            raise ValueError(
                f"call {self.call} of {self.agent}: a prompt and at least one output token are needed"
            )


@dataclass(eq=False, slots=True)
class Sequence:
    """State of one call. `tokens` is prompt and output; KV exists for the first `computed_tokens` of them."""

    spec: CallSpec
    arrival: int
    table: BlockTable
    tokens: list[int] = field(init=False)
    status: Status = field(default=Status.WAITING, init=False)
    computed_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens found in the cache at the first admission."""
    computed_prompt_tokens: int = 0
    """Prompt tokens that went through the model, again after a preemption included."""
    preemptions: int = 0
    waited_steps: int = 0
    """Steps in which it had no row."""
    admitted_before: bool = False
    follows: PrefixNode | None = None
    matched: tuple[int, PrefixMatch] | None = None
    """What the cache had of the prompt while it waits, and the cache's `changes` when it was looked up."""
    urged_priority: int | None = None
    """Highest priority among those who wait for this sequence's prefix."""
    error: RuntimeFault | None = None

    def __post_init__(self) -> None:
        """The token list starts as the prompt."""
        self.tokens = list(self.spec.prompt)

    @property
    def id(self) -> int:
        """The caller's id, unique among live sequences."""
        return self.spec.sequence

    @property
    def output(self) -> list[int]:
        """Generated tokens, a final stop token included."""
        return self.tokens[len(self.spec.prompt) :]

    @property
    def output_tokens(self) -> int:
        """Length of `output`, without making it."""
        return len(self.tokens) - len(self.spec.prompt)

    @property
    def uncomputed_tokens(self) -> int:
        """Tokens whose KV is still missing: 1 while decoding."""
        return len(self.tokens) - self.computed_tokens

    @property
    def is_complete(self) -> bool:
        """True after the last token that was asked for."""
        made = self.output_tokens
        return made > 0 and (made >= self.spec.max_output_tokens or self.tokens[-1] in self.spec.stop_tokens)

    def priority(self, aging_steps: int) -> int:
        """Priority now: one more for every `aging_steps` without a row, and never below who waits for it."""
        own = self.spec.priority + self.waited_steps // aging_steps
        return own if self.urged_priority is None else max(own, self.urged_priority)

    def move(self, cause: Cause) -> None:
        """The only writer of `status`; InvalidTransitionError for an edge that the table lacks."""
        target = TRANSITIONS.get((self.status, cause))
        if target is None:
            raise InvalidTransitionError(self.id, self.status.value, cause.value)
        self.status = target
