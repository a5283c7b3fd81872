"""`dynofarm bench runtime`: what is asked of the process, its answer, its failures, and Ctrl-C."""

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from client.errors import ErrorReport
from contract.bench import BenchReport, BenchRequest
from contract.states import GateExit
from measures.wording import number
from tests.client.conftest import Cli, Outcome
from tests.client.processes import REPOSITORY, environment, finish, is_alive, start, wait_for
from tests.fakes.bench_process import report

FAKE = json.dumps([sys.executable, "-m", "tests.fakes.bench_process"])


@pytest.fixture
def bench(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """`bench(plan, *options)`: the outcome of the command with the fake process, and what that was asked."""
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    asked = tmp_path / "asked.json"

    def call(plan: dict[str, Any], *options: str) -> tuple[Outcome, BenchRequest | None]:
        fake = json.dumps({"asked": str(asked), **plan})
        outcome = cli("bench", "runtime", *options, DYNOFARM_BENCH_COMMAND=FAKE, FAKE_BENCH=fake)
        return outcome, BenchRequest.model_validate_json(asked.read_text()) if asked.exists() else None

    return call


def answer(**changes: object) -> dict[str, Any]:
    return {"answer": report(**changes).model_dump(mode="json")}


def test_json_is_the_report_and_nothing_else(bench: Any) -> None:
    outcome, _ = bench(answer(), "--json")
    assert outcome.exit_code == GateExit.PASS
    assert BenchReport.model_validate_json(outcome.stdout) == report()


def test_without_options_the_known_work_is_measured_as_often_as_it_should(bench: Any) -> None:
    _, asked = bench(answer())
    assert asked.repeats == {"serial": 2, "serial_cached": 5, "paged": 5}
    assert asked.without_events_repeats == 5
    work = asked.workload
    assert (work.name, len(work.agents)) == ("seed-5x2000", 5)
    budgets = {segment.segment_id: segment.tokens for segment in work.segments}
    for plan in work.agents:
        parts = [[budgets[part.segment_id] for part in call.parts] for call in plan.calls]
        assert parts == [[2000, 60], [80], [80]]
        assert all(call.max_output_tokens == 64 and call.ignore_end for call in plan.calls)
        assert all(call.sampling.temperature == 0 for call in plan.calls)
        assert all(call.tool_wait is None or call.tool_wait.wait_s == 0 for call in plan.calls)


def test_options_reach_the_process(bench: Any, tmp_path: Path) -> None:
    options = ["--threads", "1", "--dtype", "bfloat16", "--tier", "aten", "--device", "cpu", "--repeats", "7"]
    (tmp_path / "m.gguf").write_text("")
    more = ["--model", str(tmp_path / "m.gguf"), "-p", "agents=2", "--seed", "9", "--serial-repeats", "0"]
    _, asked = bench(answer(), *options, *more)
    engine = asked.engine
    assert (engine.threads, engine.dtype, engine.tier, engine.device) == (1, "bfloat16", "aten", "cpu")
    assert asked.repeats == {"serial": 0, "serial_cached": 7, "paged": 7}
    assert asked.model == str(tmp_path / "m.gguf")
    assert (len(asked.workload.agents), asked.seed) == (2, 9)


def test_a_person_sees_every_arm_and_what_follows(bench: Any) -> None:
    outcome, _ = bench(answer())
    for words in ("serial_cached (n 3)", "100 (90 to 120)", "less wall than serial, %", "90"):
        assert words in outcome.stdout
    assert "not measured" in outcome.stdout
    assert "every arm wrote the same tokens" in outcome.stdout


def test_a_gain_beyond_the_bounds_of_both_arms_says_why_that_can_be(bench: Any) -> None:
    within, beyond = report().bound.reduction_vs_serial_cached_percent, 99.99
    outcome, _ = bench(answer(reduction_vs_serial_cached_percent=beyond))
    assert "by the bounds of both at the measured rates" in outcome.stdout
    assert f"{number(within)}, exceeded: the serial arm is further from its bound" in outcome.stdout
    assert "at most possible" not in outcome.stdout


def test_a_model_is_named_as_calibrate_takes_it(bench: Any, tmp_path: Path) -> None:
    models = tmp_path / "home" / "models"
    (models / "folder").mkdir(parents=True)
    (models / "folder" / "config.json").write_text("{}")
    (models / "file.gguf").write_text("")
    _, asked = bench(answer(), "--model", "folder")
    assert asked.model == str(models / "folder")
    _, asked = bench(answer(), "--model", "file")
    assert asked.model == str(models / "file.gguf")
    _, asked = bench(answer(), "--model", "smollm2-135m-instruct")
    assert asked.model == ""


def test_disturbed_runs_and_different_tokens_cannot_be_overlooked(bench: Any) -> None:
    outcome, _ = bench(answer(contaminated_runs=2, outputs_agree=False))
    assert "do not quote" in outcome.stdout
    assert "DIFFERENT TOKENS" in outcome.stdout


@pytest.mark.parametrize(
    ("exit_code", "expected"), [(1, GateExit.INFRASTRUCTURE), (2, GateExit.USAGE), (3, GateExit.CANCELLED)]
)
def test_a_failure_keeps_its_words_and_gets_an_exit_code(
    bench: Any, exit_code: int, expected: GateExit
) -> None:
    failure = {"kind": "model-file-missing", "detail": "gone.gguf: no such file", "advice": "name another"}
    outcome, _ = bench({"answer": failure, "exit_code": exit_code}, "--json")
    assert outcome.exit_code == expected
    said = ErrorReport.model_validate_json(outcome.stdout)
    assert (said.error, said.detail, said.next_step) == tuple(failure.values())
    assert "what to do: name another" in outcome.stderr


@pytest.mark.parametrize("said", ["", "no JSON", '{"kind": "x"}'])
def test_a_process_without_an_answer_is_infrastructure(bench: Any, said: str) -> None:
    outcome, _ = bench({"answer": said, "exit_code": 9}, "--json")
    assert outcome.exit_code == GateExit.INFRASTRUCTURE
    assert "exit code 9" in ErrorReport.model_validate_json(outcome.stdout).detail


def test_a_process_that_cannot_be_started_is_said(cli: Cli) -> None:
    outcome = cli("bench", "runtime", DYNOFARM_BENCH_COMMAND='["/nowhere/python"]')
    assert outcome.exit_code == GateExit.INFRASTRUCTURE
    assert "/nowhere/python" in outcome.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--workload", "gone"], "seed-5x2000"),
        (["--model", "gone"], "gone is not a file or folder, and not a model of"),
        (["--model", "x" * 300], "is not a file or folder, and not a model of"),
        (["-p", "agents=0"], "agents"),
        (["-p", "agents"], "NAME=VALUE"),
        (["--workload", "sweep-agents"], "sweep of 3"),
        (["--tier", "fastest"], "fastest"),
        (["--threads", "0"], "--threads"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_starts(
    bench: Any, options: list[str], words: str
) -> None:
    outcome, asked = bench(answer(), *options)
    assert outcome.exit_code == GateExit.USAGE
    assert words in outcome.stderr
    assert asked is None


def test_ctrl_c_stops_the_process_too(tmp_path: Path) -> None:
    started = tmp_path / "started"
    plan = json.dumps({"hang": str(started)})
    env = environment(tmp_path, DYNOFARM_BENCH_COMMAND=FAKE, FAKE_BENCH=plan)
    process = start(["bench", "runtime", "--json"], env)
    pid = int(wait_for(lambda: started.exists() and started.read_text()))
    process.send_signal(signal.SIGINT)
    code, stdout, stderr = finish(process)
    assert (code, stdout) == (130, "")
    assert "Traceback" not in stderr
    assert started.with_suffix(".stopped").exists()
    assert not is_alive(pid)
