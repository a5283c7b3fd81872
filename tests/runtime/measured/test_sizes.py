from hypothesis import given
from hypothesis import strategies as st

from contract.workload import AgentPlan, Call, CompiledWorkload, OutputPart, Segment, SegmentPart
from runtime.engine.generator import CallKey
from runtime.measured.graph import prompt_parts
from runtime.measured.prompts import PromptBook
from runtime.measured.sizes import workload_sizes
from tests.fakes.attempt_specs import shared_prefix, workload


class Letters:
    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]


def sizes(work: CompiledWorkload, context_tokens: int = 10_000):
    return workload_sizes(work, PromptBook(work.segments, Letters()), context_tokens)


def test_the_shared_beginning_is_counted_to_the_token() -> None:
    work = shared_prefix(agents=3, system_tokens=100)
    # The tasks begin alike, "Task ", and differ in the number that follows.
    assert sizes(work).shared_tokens == 105
    assert sizes(shared_prefix(agents=1)).shared_tokens == 0


def test_a_conversation_grows_by_every_call() -> None:
    result = sizes(shared_prefix(agents=2, system_tokens=100, calls=3, output_tokens=8))
    longest = 100 + 24 + 8 + 20 + 8 + 20 + 8 - 1
    assert (result.at_most_tokens, result.at_least_tokens) == (longest, longest)
    assert result.total_tokens == 2 * longest


def test_outputs_that_may_end_early_count_only_at_most() -> None:
    call = Call(parts=[SegmentPart(segment_id="s")], max_output_tokens=50)
    work = workload([AgentPlan(agent="a", calls=[call, call])], [Segment(segment_id="s", text="x" * 10)])
    result = sizes(work)
    assert (result.at_least_tokens, result.at_most_tokens) == (20, 10 + 50 + 10 + 50 - 1)


def test_a_sequence_beyond_the_context_needs_no_room_for_it_fails_anyway() -> None:
    result = sizes(shared_prefix(agents=2, system_tokens=100, calls=3, output_tokens=8), context_tokens=160)
    assert result.at_most_tokens == 100 + 24 + 8 + 20 + 8 - 1


@given(st.lists(st.integers(1, 6), min_size=1, max_size=6), st.integers(1, 4) | st.none())
def test_sizes_agree_with_prompts_put_together_part_by_part(outputs: list[int], keep: int | None) -> None:
    segments = [Segment(segment_id=f"s{n}", text="x" * (n + 1)) for n in range(len(outputs))]
    calls = [
        Call(parts=[SegmentPart(segment_id=f"s{n}")], max_output_tokens=tokens, ignore_end=True)
        for n, tokens in enumerate(outputs)
    ]
    plan = AgentPlan(agent="a", calls=calls, keep_last_rounds=keep)
    made = {CallKey("a", n): (1,) * tokens for n, tokens in enumerate(outputs)}
    work = workload([plan], segments)
    book = PromptBook(segments, Letters())
    longest = max(
        len(book.assemble(prompt_parts(plan, n), made)) + tokens - 1 for n, tokens in enumerate(outputs)
    )
    assert sizes(work).at_most_tokens == longest


def test_another_agent_s_output_counts_with_its_budget() -> None:
    segments = [Segment(segment_id="s", text="x" * 10)]
    first = AgentPlan(agent="a", calls=[Call(parts=[SegmentPart(segment_id="s")], max_output_tokens=30)])
    second = AgentPlan(
        agent="b",
        calls=[
            Call(
                parts=[SegmentPart(segment_id="s"), OutputPart(agent="a", call=0)],
                max_output_tokens=5,
                ignore_end=True,
            )
        ],
    )
    result = sizes(workload([first, second], segments))
    assert (result.at_least_tokens, result.at_most_tokens) == (14, 44)
