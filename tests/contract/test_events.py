"""Every event has vectors, and refusals are refused for their own reason."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.events import (
    MAX_EVENT_LINE_BYTES,
    STREAMS_OF_TYPE,
    Event,
    EventLineError,
    Stream,
    event_line,
    numbered_line,
    parse_event,
)

VECTORS = Path(__file__).parents[2] / "contract" / "vectors"
CASES: list[dict[str, Any]] = json.loads((VECTORS / "events.json").read_text(encoding="utf-8"))["cases"]
VALID = [case for case in CASES if case["valid"]]
REFUSED = [case for case in CASES if not case["valid"]]
TYPES = {get_args(model.model_fields["type"].annotation)[0] for model in get_args(get_args(Event)[0])}


def test_the_manifest_names_every_vector_file_and_nothing_else() -> None:
    manifest = json.loads((VECTORS / "manifest.json").read_text(encoding="utf-8"))
    found = {path.name for path in VECTORS.glob("*.json")} - {"manifest.json"}
    assert set(manifest["files"]) == found


def test_every_event_type_has_a_valid_vector_and_a_stream() -> None:
    assert {json.loads(case["line"])["type"] for case in VALID} == TYPES
    assert set(STREAMS_OF_TYPE) == TYPES


def test_what_only_phones_send_is_in_the_contract_from_the_first_day() -> None:
    phone = {"thermal_sampled", "battery_sampled", "memory_warned"}
    trace = {"blocks_allocated", "blocks_shared", "block_copied", "blocks_released", "block_evicted"}
    assert phone | trace | {"prefix_hit", "batch_executed"} <= TYPES


@pytest.mark.parametrize("case", VALID, ids=lambda case: case["name"])
def test_a_valid_line_is_read_and_written_back_as_it_was(case: dict[str, Any]) -> None:
    event = parse_event(case["line"])
    assert parse_event(event_line(event)) == event
    assert json.loads(event_line(event)).items() >= json.loads(case["line"]).items()


@pytest.mark.parametrize("case", VALID, ids=lambda case: case["name"])
@pytest.mark.parametrize("seq", [1, 7, 10, 99_999, 2**53 - 1])
def test_a_line_is_numbered_as_a_copy_with_that_number_would_be_written(
    case: dict[str, Any], seq: int
) -> None:
    event = parse_event(case["line"])
    assert numbered_line(event, seq) == event_line(event.model_copy(update={"seq": seq}))


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["name"])
def test_a_refused_line_names_its_field(case: dict[str, Any]) -> None:
    with pytest.raises(EventLineError) as caught:
        parse_event(case["line"])
    assert caught.value.field == case["field"]


@pytest.mark.parametrize("type_name", sorted(TYPES))
def test_every_type_refuses_an_unknown_field(type_name: str) -> None:
    line = next(case["line"] for case in VALID if json.loads(case["line"])["type"] == type_name)
    with pytest.raises(EventLineError) as caught:
        parse_event(json.dumps({**json.loads(line), "surprise": 1}))
    assert "surprise" in caught.value.field


def test_a_line_over_the_limit_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(EventLineError, match="bytes"):
        parse_event(b" " * (MAX_EVENT_LINE_BYTES + 1))


@given(st.binary(max_size=200))
def test_any_bytes_are_an_event_or_the_one_error(line: bytes) -> None:
    with pytest.raises(EventLineError):
        parse_event(line)


@given(st.sampled_from(VALID), st.data())
def test_a_valid_line_cut_anywhere_is_refused(case: dict[str, Any], data: st.DataObject) -> None:
    line = case["line"]
    with pytest.raises(EventLineError):
        parse_event(line[: data.draw(st.integers(0, len(line) - 1))])


def test_the_log_can_be_dropped_without_losing_a_metric() -> None:
    log_only = {name for name, streams in STREAMS_OF_TYPE.items() if streams == {Stream.LOG}}
    assert "token_emitted" not in log_only
    assert "call_finished" not in log_only
    assert "log_line" in log_only


@pytest.mark.parametrize(
    ("field", "kind", "rest"),
    [
        (
            "temperature_celsius",
            "battery_sampled",
            '"level_percent":5,"charging":true,"temperature_celsius":NaN',
        ),
        ("level_percent", "battery_sampled", '"level_percent":1e999,"charging":true'),
        ("others_cpu_percent", "host_sampled", '"others_cpu_percent":-Infinity,"open_files":1'),
        ("conditions.extra.y", "conditions_recorded", '"conditions":{"extra":{"y":NaN}}'),
    ],
)
def test_nan_and_infinity_are_no_facts(field: str, kind: str, rest: str) -> None:
    with pytest.raises(EventLineError, match=field):
        parse_event(f'{{"seq":2,"t_mono_ns":1,"type":"{kind}",{rest}}}')


@pytest.mark.parametrize(
    ("field", "number"), [("trial", 2**40), ("trial", 2**64), ("pair", 2**40), ("pair", -1)]
)
def test_a_trial_has_a_number_that_a_column_holds(field: str, number: int) -> None:
    numbers = {"trial": 1, "pair": 1, field: number}
    line = {"seq": 2, "t_mono_ns": 1, "type": "trial_started", "arm": "a", "warmup": False, **numbers}
    with pytest.raises(EventLineError, match=field):
        parse_event(json.dumps(line))
