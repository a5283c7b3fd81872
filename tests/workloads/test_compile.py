"""Workload files become task graphs, and every mistake names its place."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.rest import WorkloadRequest
from contract.workload import CompiledWorkload, largest_sequence_tokens
from workloads import Source, WorkloadError, catalogue, compile_request, compile_source

BUILT_IN = [view.name for view in catalogue()]

MINIMAL = """\
workload: tiny
version: 1
title: Tiny
description: One call.
parameters:
  words: {kind: integer, default: 8, minimum: 1, maximum: 64, description: tokens to write}
texts:
  question: {text: "Why?"}
agents:
  - name: solo
    calls:
      - input: {text: question}
        output_tokens: $words
"""


def compiled(text: str, **params: object) -> CompiledWorkload:
    (only,) = compile_source(Source("my.yaml", text), params)
    return only


def problem(text: str, **params: object) -> WorkloadError:
    with pytest.raises(WorkloadError) as caught:
        compile_source(Source("my.yaml", text), params)
    return caught.value


@pytest.mark.parametrize("name", BUILT_IN)
def test_each_built_in_workload_compiles_with_its_defaults(name: str) -> None:
    cells = compile_request(WorkloadRequest(name=name))
    assert cells
    assert all(cell.name == name for cell in cells)
    assert len({cell.digest for cell in cells}) == len(cells)


def test_the_workloads_of_the_articles_are_all_there() -> None:
    assert {
        "single",
        "chain",
        "shared-prefix",
        "no-shared-prefix",
        "long-history",
        "batch-8",
        "soak",
        "sweep-agents",
    } <= set(BUILT_IN)


def test_shared_prefix_gives_every_agent_the_same_beginning_and_its_own_task() -> None:
    (cell,) = compile_request(
        WorkloadRequest(name="shared-prefix", params={"agents": 5, "prefix_tokens": 300, "calls": 3})
    )
    openings = [plan.calls[0].parts for plan in cell.agents]
    assert len(cell.agents) == 5
    assert all(len(plan.calls) == 3 for plan in cell.agents)
    assert len({tuple(part.segment_id for part in parts[:3]) for parts in openings}) == 1
    assert len({parts[4].segment_id for parts in openings}) == 5
    assert [call.tool_wait is not None for call in cell.agents[0].calls] == [False, True, True]


def test_without_a_shared_prefix_no_two_agents_begin_alike() -> None:
    (cell,) = compile_request(WorkloadRequest(name="no-shared-prefix", params={"agents": 4}))
    texts = {segment.segment_id: segment.text for segment in cell.segments}
    first_characters = {texts[plan.calls[0].parts[0].segment_id][0] for plan in cell.agents}
    assert len(first_characters) == 4


def test_a_sweep_is_one_cell_for_each_value_unless_the_caller_sets_it() -> None:
    cells = compile_request(WorkloadRequest(name="sweep-agents"))
    assert [cell.variant for cell in cells] == ["agents=2", "agents=4", "agents=8"]
    (fixed,) = compile_request(WorkloadRequest(name="sweep-agents", params={"agents": 3}))
    assert (fixed.variant, len(fixed.agents)) == ("", 3)


def test_the_soak_goes_on_for_thirty_minutes() -> None:
    (cell,) = compile_request(WorkloadRequest(name="soak"))
    assert cell.repeat_for_s == 1800


def test_the_chain_hands_outputs_on() -> None:
    (cell,) = compile_request(WorkloadRequest(name="chain"))
    outputs = [
        (plan.agent, part.agent, part.call)
        for plan in cell.agents
        for call in plan.calls
        for part in call.parts
        if part.kind == "output"
    ]
    assert outputs == [
        ("executor", "planner", 0),
        ("summariser", "planner", 0),
        ("summariser", "executor", 1),
    ]


def test_the_same_file_and_values_have_the_same_digest_and_others_do_not() -> None:
    assert compiled(MINIMAL).digest == compiled(MINIMAL).digest
    assert compiled(MINIMAL).digest != compiled(MINIMAL, words=9).digest


def test_a_parameter_stands_where_its_name_stood_and_an_offset_is_added() -> None:
    text = MINIMAL.replace("output_tokens: $words", "output_tokens: $words-1")
    assert compiled(text, words=5).agents[0].calls[0].max_output_tokens == 4


def test_the_longest_context_counts_budgets_and_forced_outputs() -> None:
    text = MINIMAL.replace("{text: question}", "{text: question, tokens: 100}").replace(
        "output_tokens: $words", "output_tokens: 7\n        ignore_end: true"
    )
    marks = 3
    assert largest_sequence_tokens(compiled(text)) == 100 + 7 + marks


@pytest.mark.parametrize(
    ("change", "line", "field", "words"),
    [
        (("output_tokens: $words", "output_token: 3"), 13, "agents.0.calls.0.output_token", "unknown key"),
        (("        output_tokens: $words\n", ""), 12, "agents.0.calls.0", "`output_tokens` is missing"),
        (("version: 1", "version: one"), 2, "version", "integer"),
        (("$words", "$sentences"), 13, "agents.0.calls.0.output_tokens", "no such parameter"),
        (("text: question}", "text: answer}"), 12, "agents.0.calls.0.input.text", "known: question"),
        (('{text: "Why?"}', "{file: nowhere}"), 8, "texts.question.file", "comes with dynofarm"),
        (("{text: question}", "question"), 12, "agents.0.calls.0.input", "write `{text: NAME}`"),
        (('{text: "Why?"}', '"Why?"'), 8, "texts.question", 'write `{text: "…"}`'),
        (("title: Tiny", "title: Tiny\ntitle: Twice"), 4, "title", "given twice"),
        (("title: Tiny", "title: [Tiny"), 4, "", "not valid YAML"),
        (("title: Tiny", "title: &a Tiny\nx: *a"), 4, "", "aliases"),
        (("name: solo", "name: solo\n    count: 2"), 10, "agents.0", "{index}"),
        (("input: {text: question}", "outputs_of: [{agent: solo}]"), 9, "agents", "wait for each other"),
        (("input: {text: question}", "outputs_of: [{agent: nobody}]"), 9, "agents", "no call 0"),
    ],
)
def test_a_mistake_in_the_file_names_file_line_and_key(
    change: tuple[str, str], line: int, field: str, words: str
) -> None:
    error = problem(MINIMAL.replace(*change))
    assert (error.line, error.field) == (line, field)
    assert words in error.problem
    assert str(error).startswith(f"my.yaml:{line}: ")


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"word": 3}, "no such parameter; known: words"),
        ({"words": "many"}, "not of the kind integer"),
        ({"words": True}, "not of the kind integer"),
        ({"words": 0}, "below the minimum of 1"),
        ({"words": 65}, "above the maximum of 64"),
    ],
)
def test_a_wrong_parameter_is_named(params: dict[str, object], words: str) -> None:
    error = problem(MINIMAL, **params)
    assert error.field.startswith("params.word")
    assert words in error.problem


@pytest.mark.parametrize("text", ["", "just words", "- a\n- list\n", "1: {}\n", "workload: [\n", "\t"])
def test_something_that_is_no_workload_is_refused_with_its_file(text: str) -> None:
    assert problem(text).source_name == "my.yaml"


def test_a_file_too_large_or_too_deep_is_refused() -> None:
    assert "characters" in problem("x" * 1_000_001).problem
    assert "deeper" in problem("x: " + "[" * 64 + "]" * 64).problem


def test_an_unknown_workload_lists_the_known_ones_and_is_never_a_path() -> None:
    for name in ("nothing", "../texts/lab-handbook", "/etc/passwd"):
        with pytest.raises(WorkloadError, match="known: batch-8"):
            compile_request(WorkloadRequest.model_construct(name=name, source=None, params={}))


def test_a_request_names_exactly_one_of_name_and_source() -> None:
    for request in (WorkloadRequest(), WorkloadRequest(name="single", source="x")):
        with pytest.raises(WorkloadError, match="exactly one"):
            compile_request(request)


@given(st.text(max_size=300))
def test_any_text_gives_a_workload_or_the_one_error(text: str) -> None:
    with pytest.raises(WorkloadError):
        compile_source(Source("fuzz.yaml", text), {})


@given(st.integers(0, len(MINIMAL) - 1), st.characters())
def test_any_one_changed_character_gives_a_workload_or_the_one_error(position: int, character: str) -> None:
    text = MINIMAL[:position] + character + MINIMAL[position + 1 :]
    with contextlib.suppress(WorkloadError):
        cells = compile_source(Source("fuzz.yaml", text), {})
        assert all(isinstance(cell, CompiledWorkload) for cell in cells)


README = Path(__file__).parents[2] / "workloads" / "README.md"


def test_the_example_of_the_readme_compiles() -> None:
    example = README.read_text(encoding="utf-8").partition("```yaml\n")[2].partition("```")[0]
    found = compiled(example)
    assert [plan.agent for plan in found.agents] == ["reader-1", "reader-2", "reader-3"]
    assert all(len(plan.calls) == 2 for plan in found.agents)


def test_the_readme_explains_every_top_level_key() -> None:
    from workloads.template import AgentTemplate, CallTemplate, WorkloadFile

    readme = README.read_text(encoding="utf-8")
    for model in (WorkloadFile, AgentTemplate, CallTemplate):
        for key in model.model_fields:
            assert key in readme, key
