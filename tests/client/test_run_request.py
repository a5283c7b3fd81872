"""Options of `dynofarm submit` to a run request, and what is wrong with them."""

import json
from pathlib import Path

import pytest

from client.assignments import arm_requests, assignments, text_assignments
from client.errors import UsageError
from client.run_request import MAX_WORKLOAD_FILE_BYTES, SubmitOptions, run_request
from contract.rest import RunRequest, WorkloadRequest


def test_what_is_not_said_is_left_to_the_contract() -> None:
    request = run_request(SubmitOptions(workload="chain", model="tiny"))
    assert request == RunRequest(workload=WorkloadRequest(name="chain"), model="tiny")


def test_every_option_arrives() -> None:
    request = run_request(
        SubmitOptions(
            workload="chain",
            model="tiny",
            params=["agents=3", "prefix_tokens=100"],
            arms=["serial", "small=paged,block_tokens=16"],
            pairs=7,
            warmups=0,
            design="random",
            seed=4,
            engine=["dtype=float32", "threads=2"],
            devices=["a", "b"],
            device_labels=["rack=7"],
            metrics=["wall_s", "ttft_ms"],
            floors=["wall_s=1.5"],
            alpha=0.01,
            inconclusive="pass",
            commit="abc",
            labels=["branch=7"],
            priority=0,
            queue_deadline_s=60.0,
            max_attempts=1,
            wait_for_capacity=True,
        )
    )
    assert request.workload.params == {"agents": 3, "prefix_tokens": 100}
    assert [(arm.arm, arm.mode, arm.engine) for arm in request.arms] == [
        ("serial", "serial", {}),
        ("small", "paged", {"block_tokens": 16}),
    ]
    assert (request.baseline, request.candidate) == ("serial", "small")
    assert (request.repetitions, request.warmups, request.design, request.seed) == (7, 0, "random", 4)
    assert (request.engine.dtype, request.engine.threads) == ("float32", 2)
    assert [(one.device_id, one.labels) for one in request.selectors] == [
        ("a", {"rack": "7"}),
        ("b", {"rack": "7"}),
    ]
    assert request.gate.metrics == ["wall_s", "ttft_ms"]
    assert (request.gate.alpha, request.gate.inconclusive) == (0.01, "pass")
    assert request.gate.floor_percent == {"wall_s": 1.5}
    assert (request.build.commit, request.labels) == ("abc", {"branch": "7"})
    assert (request.priority, request.max_attempts, request.queue_deadline_s) == (0, 1, 60.0)
    assert request.wait_for_capacity


def test_a_workload_file_travels_as_text_under_its_own_name(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("workload: mine\n")
    request = run_request(SubmitOptions(workload_file=file, model="tiny"))
    assert (request.workload.source, request.workload.source_name) == ("workload: mine\n", "mine.yaml")


def test_a_whole_request_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    wanted = RunRequest(workload=WorkloadRequest(name="chain"), model="tiny", repetitions=9)
    file.write_text(wanted.model_dump_json())
    assert run_request(SubmitOptions(request=file)) == wanted


def test_a_wrong_field_of_that_file_is_named_with_the_file(tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    file.write_text(json.dumps({"workload": {"name": "chain"}, "model": "tiny", "repetition": 9}))
    with pytest.raises(UsageError, match=r"request\.json") as raised:
        run_request(SubmitOptions(request=file))
    assert [problem.pointer for problem in raised.value.errors] == ["/repetition"]


def test_all_wrong_fields_are_named_at_once() -> None:
    with pytest.raises(UsageError) as raised:
        run_request(SubmitOptions(workload="chain", model="tiny", pairs=0, engine=["dtype=int1", "speed=2"]))
    pointers = {problem.pointer for problem in raised.value.errors}
    assert pointers == {"/repetitions", "/engine/dtype", "/engine/speed"}
    (speed,) = (problem for problem in raised.value.errors if problem.pointer == "/engine/speed")
    assert "there are device, tier, dtype" in speed.detail


def test_an_engine_option_of_an_arm_that_does_not_exist_is_answered_with_those_that_do() -> None:
    with pytest.raises(UsageError, match="thread") as caught:
        arm_requests(["paged,thread=2"], "--arm")
    assert "threads" in caught.value.next_step


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (SubmitOptions(model="tiny"), "--workload-file"),
        (SubmitOptions(workload="chain", workload_file=Path("x"), model="tiny"), "--workload-file"),
        (SubmitOptions(workload="chain"), "--model"),
        (SubmitOptions(workload_file=Path("/nowhere/x.yaml"), model="tiny"), "/nowhere/x.yaml"),
        (SubmitOptions(workload="chain", model="tiny", params=["agents"]), "--param"),
        (SubmitOptions(workload="chain", model="tiny", params=["a=1", "a=2"]), "twice"),
        (SubmitOptions(workload="chain", model="tiny", arms=["fast"]), "not a mode"),
    ],
)
def test_a_missing_or_doubled_option_is_named(options: SubmitOptions, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        run_request(options)


def test_a_huge_or_binary_workload_file_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    huge, binary = tmp_path / "huge.yaml", tmp_path / "model.gguf"
    huge.write_bytes(b"#" * (MAX_WORKLOAD_FILE_BYTES + 1))
    binary.write_bytes(b"GGUF\xff\xfe")
    for file in (huge, binary):
        with pytest.raises(UsageError, match=file.name):
            run_request(SubmitOptions(workload_file=file, model="tiny"))


def test_values_read_as_json_where_they_are_and_as_text_where_not() -> None:
    given = ["a=1", "b=1.5", "c=true", "d=word", 'e="7"', "f=[1]", "g=x=y", "h="]
    assert assignments(given, "-p") == {
        **{"a": 1, "b": 1.5, "c": True, "d": "word"},
        **{"e": "7", "f": "[1]", "g": "x=y", "h": ""},
    }
    assert text_assignments(["a=1"], "--label") == {"a": "1"}


def test_an_arm_without_a_mode_is_named_after_it() -> None:
    assert [(arm.arm, arm.mode) for arm in arm_requests(["serial_cached", "x=paged"], "--arm")] == [
        ("serial_cached", "serial_cached"),
        ("x", "paged"),
    ]
