import pytest

from contract.workload import OutputPart, Segment, SegmentPart
from runtime.engine.generator import CallKey
from runtime.errors import BadAttemptSpecError
from runtime.measured.prompts import PromptBook


class Letters:
    """One token a letter; blanks have none."""

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text if letter != " "]


@pytest.mark.parametrize(
    ("budget", "tokens"), [(None, "abc"), (2, "ab"), (3, "abc"), (7, "abcabca")], ids=str
)
def test_a_segment_has_exactly_its_budget_cut_or_repeated(budget: int | None, tokens: str) -> None:
    book = PromptBook([Segment(segment_id="s", text="a b c", tokens=budget)], Letters())
    assert book.segment("s") == tuple(map(ord, tokens))


def test_a_prompt_is_its_parts_in_order_and_a_segment_never_depends_on_its_neighbours() -> None:
    book = PromptBook([Segment(segment_id="s", text="ab"), Segment(segment_id="t", text="c")], Letters())
    parts = [
        SegmentPart(segment_id="t"),
        OutputPart(agent="x", call=1),
        SegmentPart(segment_id="s"),
        SegmentPart(segment_id="t"),
    ]
    assert book.assemble(parts, {CallKey("x", 1): (7, 8)}) == (99, 7, 8, 97, 98, 99)


def test_an_output_of_no_tokens_is_nothing() -> None:
    book = PromptBook([Segment(segment_id="s", text="a")], Letters())
    parts = [SegmentPart(segment_id="s"), OutputPart(agent="x", call=0)]
    assert book.assemble(parts, {CallKey("x", 0): ()}) == (97,)


def test_a_text_without_a_token_is_refused_by_name() -> None:
    with pytest.raises(BadAttemptSpecError) as refused:
        PromptBook([Segment(segment_id="empty", text="  ")], Letters())
    assert refused.value.field == "workload.segments.empty.text"
