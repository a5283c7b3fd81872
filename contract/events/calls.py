"""Events of agents, calls and tokens: raw facts from which every latency is computed."""

from typing import Literal

from contract.events.envelope import CallIndex, Count, EventEnvelope, Trial
from contract.failures import FailureReason
from contract.ids import Name


class _CallEvent(EventEnvelope):
    trial: Trial
    agent: Name
    call: CallIndex


class CallArrived(_CallEvent):
    """The call is known to the runtime; TTFT from arrival counts from here."""

    type: Literal["call_arrived"] = "call_arrived"
    prompt_tokens: Count


class CallAdmitted(_CallEvent):
    """The call leaves the queue; `cached_tokens` of its prompt need no computing."""

    type: Literal["call_admitted"] = "call_admitted"
    cached_tokens: Count


class TokenEmitted(_CallEvent):
    """One output token, `index` from 0."""

    type: Literal["token_emitted"] = "token_emitted"
    index: Count
    token_id: Count


class CallFinished(_CallEvent):
    """The call is done. computed_tokens: prompt tokens that went through the model, again after a
    preemption included; cached_tokens: prompt tokens that did not."""

    type: Literal["call_finished"] = "call_finished"
    finish_reason: Literal["stop", "length", "cancelled"]
    prompt_tokens: Count
    cached_tokens: Count
    computed_tokens: Count
    output_tokens: Count
    text: str


class CallFailed(_CallEvent):
    """The call ended without a result; the others go on."""

    type: Literal["call_failed"] = "call_failed"
    reason: FailureReason
    detail: str


class ToolWaitStarted(_CallEvent):
    """The agent waits for a tool before this call."""

    type: Literal["tool_wait_started"] = "tool_wait_started"
    tool: Name


class ToolWaitFinished(_CallEvent):
    """The tool's result is there."""

    type: Literal["tool_wait_finished"] = "tool_wait_finished"
    tool: Name


class SequencePreempted(_CallEvent):
    """Memory ran short: the sequence lost `dropped_tokens` of its KV and will compute them again."""

    type: Literal["sequence_preempted"] = "sequence_preempted"
    dropped_tokens: Count


class SequenceResumed(_CallEvent):
    """A preempted sequence goes on; `recomputed_tokens` are computed a second time."""

    type: Literal["sequence_resumed"] = "sequence_resumed"
    recomputed_tokens: Count


class AgentRetried(_CallEvent):
    """The call is tried again (at most twice)."""

    type: Literal["agent_retried"] = "agent_retried"
    retry: Count
    reason: FailureReason


class AgentFinished(EventEnvelope):
    """All calls of the agent are done, or it ended early."""

    type: Literal["agent_finished"] = "agent_finished"
    trial: Trial
    agent: Name
    status: Literal["completed", "failed", "cancelled"]
    retries: Count
    reason: FailureReason | None = None


class ContaminationFound(_CallEvent):
    """A block holds a token that is not this sequence's."""

    type: Literal["contamination_found"] = "contamination_found"
    position: Count
    expected_token: Count
    found_token: Count | None
