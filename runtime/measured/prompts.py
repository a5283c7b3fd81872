"""From parts to token ids. Every segment is tokenised once and on its own, so that equal parts share KV."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, cycle, islice
from typing import Protocol

from contract.workload import OutputPart, Part, Segment
from runtime.engine.generator import CallKey
from runtime.errors import BadAttemptSpecError


class SegmentTokenizer(Protocol):
    """What prompts need of a tokenizer: it adds no special token and recognises those in the text."""

    def encode(self, text: str) -> Sequence[int]: ...


class PromptBook:
    """Token ids of every segment. BadAttemptSpecError for a text that has no token."""

    def __init__(self, segments: Iterable[Segment], tokenizer: SegmentTokenizer) -> None:
        self._tokens = {segment.segment_id: _segment_tokens(segment, tokenizer) for segment in segments}

    def segment(self, segment_id: str) -> tuple[int, ...]:
        """The ids of one segment, exactly as many as its budget says."""
        return self._tokens[segment_id]

    def assemble(self, parts: Iterable[Part], outputs: Mapping[CallKey, Sequence[int]]) -> tuple[int, ...]:
        """The prompt that the parts make; `outputs` holds every call that an OutputPart names."""
        return tuple(
            chain.from_iterable(
                outputs[CallKey(part.agent, part.call)]
                if isinstance(part, OutputPart)
                else self._tokens[part.segment_id]
                for part in parts
            )
        )


def _segment_tokens(segment: Segment, tokenizer: SegmentTokenizer) -> tuple[int, ...]:
    tokens = tokenizer.encode(segment.text)
    if not tokens:
        raise BadAttemptSpecError(
            f"workload.segments.{segment.segment_id}.text", "the tokenizer makes no token of it"
        )
    return tuple(tokens if segment.tokens is None else islice(cycle(tokens), segment.tokens))
