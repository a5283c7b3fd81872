"""One call after the other in a contiguous cache: same kernels, precision and sampler as the paged engine."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from runtime.engine.generator import (
    Admitted,
    CallBroke,
    CallDone,
    CallRequest,
    Fact,
    FinishReason,
    KVState,
    StepRan,
    TokenMade,
    make_sampler,
)
from runtime.errors import ContextOverflowError, PoolTooSmallError
from runtime.model.contiguous_kv import ContiguousKV
from runtime.model.draw import draw
from runtime.model.forward_batch import ForwardBatch, Span
from runtime.model.llama import LlamaModel
from runtime.model.sampler import SequenceSampler


@dataclass(slots=True)
class _Generation:
    request: CallRequest
    sampler: SequenceSampler
    is_admitted: bool = False
    computed: int = 0
    output: list[int] = field(default_factory=list)

    @property
    def in_prefill(self) -> bool:
        return self.computed < len(self.request.prompt)

    def next_tokens(self, chunk_tokens: int) -> Sequence[int]:
        prompt = self.request.prompt
        if self.in_prefill:
            return prompt[self.computed : self.computed + chunk_tokens]
        return self.output[-1:]


class ContiguousEngine:
    """Generates for one call after the other in a cache of `capacity_tokens` that every call fills anew."""

    def __init__(self, model: LlamaModel, capacity_tokens: int, chunk_tokens: int) -> None:
        self._model = model
        self._kv = ContiguousKV(model.config, capacity_tokens, model.placement)
        self._chunk_tokens = chunk_tokens
        self._waiting: list[_Generation] = []
        self._step = 0

    @property
    def has_work(self) -> bool:
        """True while any call is not at its end."""
        return bool(self._waiting)

    def check(self, request: CallRequest) -> None:
        """ContextOverflowError or PoolTooSmallError when the call can never fit."""
        longest = len(request.prompt) + request.max_output_tokens - 1
        if longest > self._model.config.context_tokens:
            raise ContextOverflowError(longest, self._model.config.context_tokens)
        if longest > self._kv.capacity_tokens:
            detail = "the contiguous cache, in tokens"
            raise PoolTooSmallError(longest, self._kv.capacity_tokens, detail)

    def submit(self, request: CallRequest) -> None:
        """Queues the call behind those that came before."""
        self._waiting.append(_Generation(request, make_sampler(request)))

    def step(self) -> list[Fact]:
        """A chunk of the first call's prompt, or its next token."""
        generation = self._waiting[0]
        key = generation.request.key
        started_ns = time.monotonic_ns()
        facts: list[Fact] = [] if generation.is_admitted else [Admitted(key, started_ns, cached_tokens=0)]
        generation.is_admitted = True
        in_prefill = generation.in_prefill
        tokens = generation.next_tokens(self._chunk_tokens)
        stop = generation.computed + len(tokens)
        wants_logits = stop >= len(generation.request.prompt)
        span = Span(tokens, generation.computed, int(wants_logits))
        logits = self._model.forward(ForwardBatch((span,)), self._kv)
        sampled, broken = draw(logits, {0: generation.sampler} if wants_logits else {})
        generation.computed = stop
        self._step += 1
        now_ns = time.monotonic_ns()
        member = ((key, len(tokens)),)
        decode, prefill = ((), member) if in_prefill else (member, ())
        facts.append(StepRan(now_ns, self._step, decode, prefill, now_ns - started_ns))
        if broken:
            self._waiting.pop(0)
            return [*facts, CallBroke(key, now_ns, next(iter(broken.values())))]
        return facts + [fact for token in sampled.values() for fact in self._take(generation, token, now_ns)]

    def kv_state(self) -> KVState | None:
        """There are no blocks here."""
        return None

    def cancel(self) -> list[Fact]:
        """Ends every call with what it has."""
        now_ns = time.monotonic_ns()
        ended: list[Fact] = [_done(generation, now_ns, "cancelled") for generation in self._waiting]
        self._waiting.clear()
        return ended

    def close(self) -> None:
        """Frees the cache's tensors."""
        self._kv.free()

    def _take(self, generation: _Generation, token: int, now_ns: int) -> list[Fact]:
        request = generation.request
        if token in request.stop_tokens:
            self._waiting.pop(0)
            return [_done(generation, now_ns, "stop")]
        generation.output.append(token)
        facts: list[Fact] = [TokenMade(request.key, now_ns, len(generation.output) - 1, token)]
        if len(generation.output) == request.max_output_tokens:
            self._waiting.pop(0)
            facts.append(_done(generation, now_ns, "length"))
        return facts


def _done(generation: _Generation, now_ns: int, reason: FinishReason) -> CallDone:
    prompt_tokens = len(generation.request.prompt)
    return CallDone(
        key=generation.request.key,
        t_ns=now_ns,
        finish_reason=reason,
        output=tuple(generation.output),
        prompt_tokens=prompt_tokens,
        cached_tokens=0,
        computed_tokens=min(generation.computed, prompt_tokens),
    )
