"""Whatever the shape of a workload file accepts is compiled to a valid graph, or refused with its place."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from contract.workload import MAX_AGENTS, MAX_CALLS, CompiledWorkload, largest_sequence_tokens
from workloads import Source, WorkloadError, compile_source

# Around each bound of the contract, and the odd values that Python's own types would take.
NUMBERS = st.sampled_from(
    [-1, 0, 1, 2, 9, 64, 255, MAX_AGENTS, 257, MAX_CALLS, 1025, 131_072, 200_000, 2**31, 2**64]
)
ODD = st.sampled_from([None, True, 1.5, "3", "", [], {}, "$n", "$n-9", "$nowhere"])
NAMES = st.sampled_from(
    ["a", "b", "a{index}", "b-{index}", "a{}", "a{idx}", "{index}", "A", "", "x" * 40 + "{index}"]
)
LEADS = st.sampled_from(["", "agent {index}: ", "y" * 10_001])
USES = st.fixed_dictionaries(
    {"text": st.sampled_from(["t", "u", "v"])}, optional={"tokens": NUMBERS, "lead": LEADS}
)
OUTPUTS = st.builds(
    lambda agent, call, times: [{"agent": agent, "call": call}] * times,
    NAMES, NUMBERS, st.sampled_from([1, 2, 246, 247, 256, 257]),
)  # fmt: skip


def mostly(usual: st.SearchStrategy[Any], other: st.SearchStrategy[Any] = ODD) -> st.SearchStrategy[Any]:
    """`usual`, and once in a while something else."""
    return st.integers(0, 9).flatmap(lambda chance: other if chance == 0 else usual)


CALLS = st.fixed_dictionaries(
    {"output_tokens": mostly(st.integers(1, 131_072), ODD | NUMBERS), "input": mostly(USES)},
    optional={
        "repeat": mostly(st.sampled_from([1, 2, 1024]), NUMBERS),
        "outputs_of": OUTPUTS,
        "after": OUTPUTS,
        "tool": mostly(st.builds(lambda use: {"name": "search", "wait_s": 0.5, "result": use}, USES)),
        "sampling": mostly(st.builds(lambda number: {"top_k": number, "seed": number}, NUMBERS)),
    },
)
AGENTS = st.fixed_dictionaries(
    {"name": NAMES, "calls": st.lists(CALLS, min_size=1, max_size=3)},
    optional={
        "count": mostly(st.sampled_from([1, 2, 3, 200, 256]), NUMBERS),
        "system": USES,
        "keep_last_rounds": NUMBERS,
        "priority": NUMBERS,
    },
)
FILES = st.fixed_dictionaries(
    {
        "workload": st.just("w"),
        "version": mostly(st.just(1), NUMBERS | ODD),
        "title": st.just("t"),
        "description": st.just("d"),
        "texts": st.just({"t": {"text": "hello"}, "u": [{"text": "x"}, {"file": "lab-handbook"}]}),
        "agents": st.lists(AGENTS, min_size=1, max_size=3),
    },
    optional={
        "parameters": mostly(
            st.builds(
                lambda kind, default: {"n": {"kind": kind, "default": default, "description": "d"}},
                st.sampled_from(["integer", "number", "string"]),
                NUMBERS | ODD,
            )
        ),
        "sweep": st.dictionaries(
            st.sampled_from(["n", "m"]), st.lists(NUMBERS | ODD, max_size=65), max_size=2
        ),
        "repeat_for_s": NUMBERS | ODD,
    },
)


@settings(max_examples=150)
@given(FILES)
def test_every_file_becomes_a_graph_of_the_contract_or_an_error_with_its_line(file: dict[str, Any]) -> None:
    # JSON is YAML, and says exactly what is meant.
    for cell in compiled_or_refused_with_its_line(json.dumps(file, indent=1)):
        assert CompiledWorkload.model_validate_json(cell.model_dump_json()) == cell
        assert largest_sequence_tokens(cell) > 0


def compiled_or_refused_with_its_line(text: str) -> list[CompiledWorkload]:
    try:
        return compile_source(Source("drawn.yaml", text), {})
    except WorkloadError as refused:
        error = refused
    assert error.line is not None
    assert str(error).startswith("drawn.yaml:")
    return []
