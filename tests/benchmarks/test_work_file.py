"""The work for peers: the runtime's own ids, call by call."""

from pathlib import Path

import pytest

from benchmarks.protocol.peer_protocol import Work, conversations
from benchmarks.work import work_document, write_work
from contract.rest import WorkloadRequest
from contract.workload import CompiledWorkload
from runtime.bench.seeded_ids import seeded_prompts
from workloads import compile_request

VOCAB = 49_152


def compiled(name: str = "seed-5x2000", **params: int) -> CompiledWorkload:
    (cell,) = compile_request(WorkloadRequest(name=name, params=params))
    return cell


def test_peers_read_what_the_runtime_draws(tmp_path: Path) -> None:
    workload = compiled(agents=3)
    work = Work.read(write_work(workload, 4, VOCAB, tmp_path / "work.json"))
    book = seeded_prompts(workload.segments, 4, VOCAB)
    for plan in workload.agents:
        for call, asked in zip(plan.calls, work.agents[plan.agent], strict=True):
            expected = [token for part in call.parts for token in book.segment(part.segment_id)]
            assert (asked.tokens, asked.output_tokens) == (expected, 64)
    assert len(work.shared) == 2000
    assert work.longest == 2000 + 60 + 2 * 80 + 3 * 64


def test_a_conversation_grows_by_its_output_and_the_next_tokens(tmp_path: Path) -> None:
    small = compiled(agents=1, prefix_tokens=16, calls=2, generated_tokens=2)
    work = Work.read(write_work(small, 0, VOCAB, tmp_path / "work.json"))
    first, second = (call.tokens for call in work.agents["agent-1"])
    (conversation,) = conversations(work)
    assert conversation.prompt() == first
    conversation.finish([7, 8])
    assert conversation.prompt() == [*first, 7, 8, *second]
    conversation.finish([9, 10])
    assert conversation.is_done


def test_agents_that_depend_on_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="depend"):
        work_document(compiled("chain"), 0, VOCAB)
