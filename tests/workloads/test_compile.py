"""Workload files become task graphs, and every mistake names its place."""

import contextlib
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.rest import WorkloadRequest
from contract.workload import CompiledWorkload, largest_sequence_tokens
from workloads import Source, WorkloadError, catalogue, compile_request, compile_source
from workloads.located import plain_value

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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x: " + "[" * 900_000, "nested deeper"),
        ("x: " + "[\n " * 200_000, "nested deeper"),
        ("x:\n" + "- " * 400_000 + "a", "nested deeper"),
        ("x: " + "{a: " * 200_000, "nested deeper"),
        ("".join("\n" + " " * depth + "a:" for depth in range(500)), "nested deeper"),
        ("x: [" + "a," * 400_000 + "]", "over 50000 values"),
        ("x: " + "1" + "_" * 900_000 + "x", "is missing"),
        ("x: " + "1" * 900_000, "is missing"),
        ("? " * 400_000 + "a", "a key must be text"),
    ],
    ids=lambda text: text[:12],
)
def test_a_limit_is_looked_at_while_the_file_is_read_and_not_after(text: str, words: str) -> None:
    started_s = time.process_time()
    assert words in problem(text).problem
    one_value_each_s = 50e-6
    assert time.process_time() - started_s < 100_000 * one_value_each_s


@pytest.mark.parametrize(
    "value",
    [
        "010",
        "0b11",
        "1_000",
        "1:30",
        "190:20:30.15",
        "yes",
        "Off",
        "ON",
        "no",
        ".inf",
        "-.INF",
        ".nan",
    ],
)
def test_a_value_that_yaml_1_1_and_1_2_read_differently_is_refused_with_its_line(value: str) -> None:
    error = problem(MINIMAL.replace("default: 8", f"default: {value}"))
    assert (error.line, error.field) == (6, "parameters.words.default")
    assert f"`{value}`" in error.problem
    assert "write" in error.problem


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None), ("~", None), ("null", None), ("true", True), ("FALSE", False),
        ("0", 0), ("-12", -12), ("0x1F", 31), ("1e3", 1000.0), (".5", 0.5), ("-0.25", -0.25), ("1.", 1.0),
        ("y", "y"), ("2026-12-01", "2026-12-01"), ("12:30 sharp", "12:30 sharp"),
        ("-", "-"), ("1.2.3", "1.2.3"),
    ],
)  # fmt: skip
def test_plain_values_are_those_of_the_core_schema_of_yaml_1_2(text: str, value: object) -> None:
    assert plain_value(text) == value
    assert type(plain_value(text)) is type(value)


@pytest.mark.parametrize(
    ("change", "line", "words"),
    [
        (("version: 1", "version: true"), 2, "integer"),
        (("version: 1", 'version: "1"'), 2, "integer"),
        (("version: 1", "version: 1.0"), 2, "integer"),
        (("version: 1", "version: 99999999999999999999"), 2, "64 bits"),
        (("version: 1", "version: 4000000000"), 2, "less than"),
        (("version: 1", "version: 1e999"), 2, "too large"),
        (("title: Tiny", "title: 3"), 3, "string"),
        (("title: Tiny", "title: !!str Tiny"), 3, "tags"),
        (("title: Tiny", "title: !!python/object:os.system x"), 3, "tags"),
        (("title: Tiny", 'title: "a\\0b"'), 3, "NUL"),
        (("title: Tiny", 'title: "\\ud800"'), 3, "surrogate"),
        (("default: 8", "default: 8.5"), 6, "not of the kind integer"),
        (("default: 8", "default: 65"), 6, "above the maximum"),
        (("texts:", "sweep: {words: []}\ntexts:"), 7, "at least 1 item"),
        (("texts:", "sweep: {words: [1, many]}\ntexts:"), 7, "not of the kind integer"),
        (("texts:", "sweep: {word: [1]}\ntexts:"), 7, "no such parameter"),
        (('{text: "Why?"}', "[]"), 8, "write `{text:"),
        (("output_tokens: $words", "output_tokens: 200000"), 13, "131072"),
        (("name: solo", "name: a{}"), 10, "is not a name"),
        (("name: solo", "name: a{idx}"), 10, "is not a name"),
        (
            ("calls:\n", "calls:\n      - {input: {text: question}, output_tokens: 2, repeat: 1024}\n"),
            11,
            "1025",
        ),
        (("input: {text: question}", f"outputs_of: [{', '.join(['{agent: solo}'] * 300)}]"), 12, "246"),
        (("question: {", f"{'q' * 65}: {{"), 8, "pattern"),
        (("version: 1", "version: 1\n---\nx: 1"), 3, "second document"),
    ],
    ids=lambda change: change[1][:40] if isinstance(change, tuple) else None,
)
def test_what_passes_the_shape_and_not_the_contract_is_refused_with_its_line(
    change: tuple[str, str], line: int, words: str
) -> None:
    error = problem(MINIMAL.replace(*change))
    assert error.line == line
    assert words in error.problem
    assert len(str(error)) < 2000


def test_what_all_texts_come_to_with_their_leads_is_bounded() -> None:
    text = MINIMAL.replace("Why?", "x" * 900_000).replace("name: solo", "name: solo-{index}\n    count: 9")
    error = problem(text.replace("text: question}", "text: question, lead: 'agent {index}'}"))
    assert (error.line, error.field) == (13, "agents.0.calls.0.input")
    assert "over 8000000 characters" in error.problem
    assert "10000 characters" in problem(text.replace("n}", f"n, lead: {'x' * 10_001}}}")).problem


def test_a_sweep_is_counted_before_it_is_built() -> None:
    names = "abcd"
    parameters = "\n".join(f"  {name}: {{kind: integer, default: 1, description: knob}}" for name in names)
    values = ", ".join(map(str, range(64)))
    sweep = "\n".join(f"  {name}: [{values}]" for name in names)
    text = MINIMAL.replace("texts:", f"{parameters}\nsweep:\n{sweep}\ntexts:")
    error = problem(text)
    assert (error.line, error.problem) == (11, "the sweep has 16777216 cells, at most 128 are allowed")


def test_what_all_cells_of_a_sweep_come_to_is_bounded() -> None:
    text = MINIMAL.replace("output_tokens: $words", "output_tokens: $words\n        repeat: 1024").replace(
        "texts:", f"sweep: {{words: {list(range(1, 65))}}}\ntexts:"
    )
    assert "over 16384 calls" in problem(text).problem
    many = text.replace("name: solo", "name: solo-{index}\n    count: 256").replace("sweep: ", "# ")
    assert "over 16384 calls" in problem(many).problem


def test_an_agent_may_wait_for_the_one_of_its_own_number() -> None:
    text = MINIMAL + "        after: [{agent: 'helper-{index}'}]\n"
    text = text.replace("name: solo", "name: solo-{index}\n    count: 2")
    text += (
        "  - name: helper-{index}\n    count: 2\n    calls: [{input: {text: question}, output_tokens: 2}]\n"
    )
    waits = [plan.calls[0].after[0].agent for plan in compiled(text).agents[:2]]
    assert waits == ["helper-1", "helper-2"]


@pytest.mark.parametrize(
    ("value", "words"),
    [(2**64, "64 bits"), (10**5000, "64 bits"), (["x"] * 100, "…"), ({"a": 1}, "kind")],
    ids=["2**64", "5001 digits", "a list", "a mapping"],
)
def test_a_parameter_that_no_integer_column_holds_is_refused(value: object, words: str) -> None:
    text = MINIMAL.replace("minimum: 1, maximum: 64, ", "")
    assert words in problem(text, words=value).problem


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
