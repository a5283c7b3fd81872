"""Whatever the chunks, the block size and the sharing: both arms compute the same."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from runtime.model.contiguous_kv import ContiguousKV
from runtime.model.forward_batch import ForwardBatch, Span
from runtime.model.llama import LlamaModel
from runtime.model.paged_kv import PagedKV

TOKEN = st.integers(0, 299)


class PagedSequence:
    """A sequence with blocks of its own behind blocks that it shares; the test is its block pool."""

    def __init__(self, tokens: list[int], table: list[int], start: int) -> None:
        self.tokens = tokens
        self.table = table
        self.done = start

    def next_span(self, count: int) -> Span:
        chunk = self.tokens[self.done : self.done + count]
        span = Span(chunk, self.done, len(chunk), self.table)
        self.done += len(chunk)
        return span


def serial_logits(model: LlamaModel, tokens: list[int]) -> Tensor:
    kv = ContiguousKV(model.config, len(tokens), model.placement)
    return model.forward(ForwardBatch((Span(tokens, 0, len(tokens)),)), kv)


def admit(model: LlamaModel, kv: PagedKV, prefix: list[int], own: list[list[int]]) -> list[PagedSequence]:
    """Prefill the prefix once; all share its full blocks, and each copies its partial tail."""
    bt = kv.block_tokens
    prefix_blocks = -(-len(prefix) // bt)
    model.forward(ForwardBatch((Span(prefix, 0, 0, range(prefix_blocks)),)), kv)
    free = iter(range(prefix_blocks, kv.num_blocks))
    full, tail = divmod(len(prefix), bt)
    sequences = []
    for suffix in own:
        tokens = prefix + suffix
        table = list(range(full)) + [next(free) for _ in range(-(-len(tokens) // bt) - full)]
        if tail:
            kv.copy_slots([(full, table[full], tail)])
        sequences.append(PagedSequence(tokens, table, len(prefix)))
    return sequences


def run(model: LlamaModel, kv: PagedKV, sequences: list[PagedSequence], chunks: list[int]) -> list[Tensor]:
    """Advance all together, by the given chunk sizes in turn; the logits of each sequence's own tokens."""
    collected: list[list[Tensor]] = [[] for _ in sequences]
    turn = 0
    while any(sequence.done < len(sequence.tokens) for sequence in sequences):
        members = [index for index, sequence in enumerate(sequences) if sequence.done < len(sequence.tokens)]
        spans = []
        for index in members:
            spans.append(sequences[index].next_span(chunks[turn % len(chunks)]))
            turn += 1
        logits = model.forward(ForwardBatch(tuple(spans)), kv)
        parts = logits.split([len(span.token_ids) for span in spans])
        for index, part in zip(members, parts, strict=True):
            collected[index].append(part)
    return [torch.cat(parts) for parts in collected]


@settings(max_examples=40)
@given(
    prefix=st.lists(TOKEN, min_size=1, max_size=90),
    own=st.lists(st.lists(TOKEN, min_size=1, max_size=24), min_size=1, max_size=5),
    block_tokens=st.sampled_from([1, 3, 16, 32]),
    chunks=st.lists(st.sampled_from([1, 1, 1, 2, 5, 30]), min_size=1, max_size=4),
)
def test_any_chunking_block_size_and_sharing_gives_the_serial_logits(
    tiny: LlamaModel,
    prefix: list[int],
    own: list[list[int]],
    block_tokens: int,
    chunks: list[int],
) -> None:
    kv = PagedKV(tiny.config, 700 // block_tokens + 8, block_tokens, tiny.placement)
    sequences = admit(tiny, kv, prefix, own)
    found = run(tiny, kv, sequences, chunks)
    for sequence, logits in zip(sequences, found, strict=True):
        expected = serial_logits(tiny, sequence.tokens)[len(prefix) :]
        torch.testing.assert_close(logits, expected, atol=2e-4, rtol=2e-4)
        assert torch.equal(logits.argmax(-1), expected.argmax(-1))


def test_greedy_text_of_five_agents_is_the_serial_arms_text(tiny: LlamaModel) -> None:
    prefix = [(11 * index) % 300 for index in range(100)]
    kv = PagedKV(tiny.config, 64, 16, tiny.placement)
    sequences = admit(tiny, kv, prefix, [[agent] for agent in range(5)])
    spans = tuple(sequence.next_span(1) for sequence in sequences)
    for sequence in sequences:
        sequence.table += [40 + 4 * sequences.index(sequence) + extra for extra in range(4)]
    for _ in range(40):
        tokens = tiny.forward(ForwardBatch(spans), kv).argmax(-1).tolist()
        for sequence, token in zip(sequences, tokens, strict=True):
            sequence.tokens.append(token)
        spans = tuple(sequence.next_span(1) for sequence in sequences)
    for agent, sequence in enumerate(sequences):
        assert sequence.tokens == serial_greedy(tiny, [*prefix, agent], 40)
    texts = {tuple(sequence.tokens[101:]) for sequence in sequences}
    assert len(texts) == 5, "the agents must write different texts, or this shows little"
    assert min(len(set(text)) for text in texts) > 10


def serial_greedy(model: LlamaModel, prompt: list[int], count: int) -> list[int]:
    kv = ContiguousKV(model.config, len(prompt) + count, model.placement)
    tokens, fresh = list(prompt), prompt
    for _ in range(count):
        logits = model.forward(ForwardBatch((Span(fresh, len(tokens) - len(fresh)),)), kv)
        fresh = [int(logits[0].argmax())]
        tokens += fresh
    return tokens
