"""The work that shows what a long prefill costs the others: it arrives while another agent decodes."""

import hashlib
import json
import statistics
from typing import Final

from contract.workload import AgentPlan, Call, CompiledWorkload, Segment, SegmentPart, ToolWait
from measures.metrics.latency import inter_token_latencies_ns
from runtime.bench.trial_events import TrialEvents

DECODING: Final = "decoding"
ARRIVING: Final = "arriving"
_PROMPT_TOKENS: Final = 32
_TOKENS_BEFORE: Final = 16
_DECODED_PER_PREFILL: Final = 4
"""One token is decoded for so many of the prefill, and at least four times what is made before it.

The prefill takes small steps beside the decode: with 10 a slow machine was not done before the last token.
"""


def arriving_prefill(prefill_tokens: int) -> CompiledWorkload:
    """One agent decodes all the time; the other writes a little, then has `prefill_tokens` to read."""
    decoded = max(4 * _TOKENS_BEFORE, prefill_tokens // _DECODED_PER_PREFILL)
    segments = [
        Segment(segment_id="decoding", text="The agent that decodes.", tokens=_PROMPT_TOKENS),
        Segment(segment_id="opening", text="The agent that will read.", tokens=_PROMPT_TOKENS),
        Segment(segment_id="arriving", text="What arrives meanwhile.", tokens=prefill_tokens),
    ]
    agents = [
        AgentPlan(agent=DECODING, calls=[_call("decoding", decoded)]),
        AgentPlan(agent=ARRIVING, calls=[_call("opening", _TOKENS_BEFORE), _call("arriving", 2)]),
    ]
    body = [each.model_dump() for each in (*segments, *agents)]
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return CompiledWorkload(
        name="arriving-prefill",
        version=1,
        digest=f"sha256:{digest}",
        params={"prefill_tokens": prefill_tokens},
        segments=segments,
        agents=agents,
    )


def _call(segment_id: str, output_tokens: int) -> Call:
    return Call(
        parts=[SegmentPart(segment_id=segment_id)],
        max_output_tokens=output_tokens,
        ignore_end=True,
        tool_wait=ToolWait(tool="read") if segment_id == "arriving" else None,
    )


def worst_gap_vs_median_itl(trial: TrialEvents) -> float | None:
    """The longest gap between tokens of the agent that decodes / its median gap.

    None when the prefill did not end between two of its tokens: then nothing was measured.
    """
    calls = {(call.agent, call.call): call for call in trial.facts.calls if call.token_ns}
    decoding, reading = calls.get((DECODING, 0)), calls.get((ARRIVING, 1))
    if decoding is None or reading is None:
        return None
    if not decoding.token_ns[0] < reading.token_ns[0] < decoding.token_ns[-1]:
        return None
    gaps = inter_token_latencies_ns(decoding)
    return max(gaps) / statistics.median(gaps)
