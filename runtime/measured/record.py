"""Facts of one trial as contract events: the only place where the engine's words become the contract's."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any, Final, Literal

from contract.events import (
    AgentFinished,
    AgentRetried,
    BatchExecuted,
    BatchMember,
    CallAdmitted,
    CallArrived,
    CallFailed,
    CallFinished,
    ContaminationFound,
    KvSampled,
    SequencePreempted,
    SequenceResumed,
    TokenEmitted,
    ToolWaitFinished,
    ToolWaitStarted,
    TrialFinished,
    TrialStarted,
)
from contract.failures import FailureReason
from contract.jobs import TrialSpec
from runtime.engine.generator import (
    Admitted,
    CallBroke,
    CallDone,
    CallKey,
    Fact,
    KVState,
    Preempted,
    Resumed,
    StepRan,
    TokenMade,
)
from runtime.errors import ContaminationError
from runtime.measured.emit import PENDING_SEQ, EventEmitter, message_text
from runtime.measured.graph import EndAgent, FinishToolWait, RetryCall, StartToolWait

TEXT_CHARACTERS: Final = 32_768
"""Output text kept in call_finished, for display; the token events hold all of it."""
KV_INTERVAL_NS: Final = 50_000_000


class TrialRecorder:
    """Emits the events of one trial. `decode` makes text of output tokens."""

    def __init__(
        self, emitter: EventEmitter, spec: TrialSpec, decode: Callable[[Sequence[int]], str]
    ) -> None:
        self._emit = emitter.emit
        self._spec = spec
        self._trial = spec.trial
        self._decode = decode
        self._kv_due_ns = 0
        self._kv_last: KVState | None = None
        self._failures: dict[FailureReason, str] = {}

    def failure_text(self, reason: FailureReason) -> str:
        """The last call that failed for this reason, and what was wrong with it."""
        return self._failures.get(reason, "an agent failed; see its call_failed event")

    def started(self) -> None:
        """The trial's wall time begins."""
        spec = self._spec
        self._emit(TrialStarted(**self._at(), arm=spec.arm, pair=spec.pair, warmup=spec.warmup))

    def finished(
        self, status: Literal["completed", "failed", "cancelled"], reason: FailureReason | None
    ) -> None:
        """The trial's wall time ends."""
        now_ns = time.monotonic_ns()
        if self._kv_last is not None:
            self._emit(KvSampled(**self._at(now_ns), **asdict(self._kv_last)))
        self._emit(TrialFinished(**self._at(now_ns), status=status, reason=reason))

    def arrived(self, key: CallKey, prompt_tokens: int) -> None:
        """The call is known; TTFT counts from here."""
        self._emit(CallArrived(**self._at(), **_of(key), prompt_tokens=prompt_tokens))

    def decided(self, decision: StartToolWait | FinishToolWait | RetryCall | EndAgent) -> None:
        """What the task graph said of tools, retries and ends of agents."""
        at = self._at()
        match decision:
            case StartToolWait(key, tool):
                self._emit(ToolWaitStarted(**at, **_of(key), tool=tool))
            case FinishToolWait(key, tool):
                self._emit(ToolWaitFinished(**at, **_of(key), tool=tool))
            case RetryCall(key, retry, reason):
                self._emit(AgentRetried(**at, **_of(key), retry=retry, reason=reason))
            case EndAgent(agent, status, retries, reason):
                self._emit(AgentFinished(**at, agent=agent, status=status, retries=retries, reason=reason))

    def happened(self, fact: Fact) -> None:
        """One fact of the generator."""
        at = self._at(fact.t_ns)
        if isinstance(fact, StepRan):
            decode, prefill = _members(fact.decode), _members(fact.prefill)
            duration_ns = fact.duration_ns
            self._emit(
                BatchExecuted(**at, step=fact.step, decode=decode, prefill=prefill, duration_ns=duration_ns)
            )
            return
        at |= _of(fact.key)
        match fact:
            case TokenMade():
                self._emit(TokenEmitted(**at, index=fact.index, token_id=fact.token_id))
            case Admitted():
                self._emit(CallAdmitted(**at, cached_tokens=fact.cached_tokens))
            case Preempted():
                self._emit(SequencePreempted(**at, dropped_tokens=fact.dropped_tokens))
            case Resumed():
                self._emit(SequenceResumed(**at, recomputed_tokens=fact.recomputed_tokens))
            case CallDone():
                self._done(fact, at)
            case CallBroke():
                self._broke(fact, at)

    def kv(self, state: KVState | None) -> None:
        """The pool after a step; emitted at most every 50 ms, and at the trial's end."""
        if state is None:
            return
        now_ns = time.monotonic_ns()
        self._kv_last = state
        if now_ns >= self._kv_due_ns:
            self._kv_due_ns = now_ns + KV_INTERVAL_NS
            self._emit(KvSampled(**self._at(now_ns), **asdict(state)))

    def _done(self, fact: CallDone, at: dict[str, Any]) -> None:
        self._emit(
            CallFinished(
                **at,
                finish_reason=fact.finish_reason,
                prompt_tokens=fact.prompt_tokens,
                cached_tokens=fact.cached_tokens,
                computed_tokens=fact.computed_tokens,
                output_tokens=len(fact.output),
                text=self._decode(fact.output)[:TEXT_CHARACTERS],
            )
        )

    def _broke(self, fact: CallBroke, at: dict[str, Any]) -> None:
        error = fact.error
        if isinstance(error, ContaminationError):
            self._emit(
                ContaminationFound(
                    **at,
                    position=error.position,
                    expected_token=error.expected_token,
                    found_token=error.found_token,
                )
            )
        self._failures[error.reason] = f"agent {fact.key.agent}, call {fact.key.call}: {error.kind}: {error}"
        self._emit(CallFailed(**at, reason=error.reason, detail=message_text(str(error))))

    def _at(self, t_ns: int | None = None) -> dict[str, Any]:
        """What every event of the trial begins with; without a time, it is now."""
        at_ns = time.monotonic_ns() if t_ns is None else t_ns
        return {"seq": PENDING_SEQ, "t_mono_ns": at_ns, "trial": self._trial}


def _of(key: CallKey) -> dict[str, Any]:
    return {"agent": key.agent, "call": key.call}


def _members(members: Iterable[tuple[CallKey, int]]) -> list[BatchMember]:
    return [BatchMember(agent=key.agent, call=key.call, tokens=tokens) for key, tokens in members]
