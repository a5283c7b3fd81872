"""The process: one JSON object whatever happens, exit codes, and signals."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from contract.bench import BenchFailure, BenchReport
from contract.runtime_link import RuntimeExit
from runtime.bench.cli import main
from tests.fakes.machine_use import FakeMachine
from tests.runtime.bench.conftest import MakeRequest, small_work

REPOSITORY = Path(__file__).parents[3]


def written(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "request.json"
    path.write_text(text)
    return ["--request", str(path)]


def test_a_request_is_answered_with_one_report(
    make_request_for: MakeRequest, machine: FakeMachine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = make_request_for(repeats={"paged": 1}, without_events_repeats=0, arriving_prefill_repeats=0)
    assert main(written(tmp_path, asked.model_dump_json())) == RuntimeExit.COMPLETED
    out, err = capsys.readouterr()
    report = BenchReport.model_validate_json(out)
    assert (report.workload, report.tier, report.dtype) == ("seed-5x2000", "aten", "float32")
    assert report.arms["paged"].wall_s.n == 1
    assert "round 1" in err
    assert "GB/s" in err


def test_a_request_that_is_none_is_refused_with_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(written(tmp_path, '{"workload": 3}')) == RuntimeExit.USAGE
    failure = BenchFailure.model_validate_json(capsys.readouterr().out)
    assert "workload" in failure.detail
    assert main(["--request", str(tmp_path / "gone.json")]) == RuntimeExit.USAGE
    assert "cannot be read" in BenchFailure.model_validate_json(capsys.readouterr().out).detail


@pytest.mark.parametrize(
    "case",
    [
        ({"model": "gone.gguf"}, RuntimeExit.USAGE, "gone.gguf"),
        ({"model": "x" * 300}, RuntimeExit.USAGE, "File name too long"),
        ({"limit_s": 1.0, "repeats": {"serial": 100}}, RuntimeExit.USAGE, "limit_s: not all was measured"),
        ({"repeats": {}, "without_events_repeats": 0}, RuntimeExit.USAGE, "repeats"),
        (
            {"repeats": {"paged": 1}, "engine": {"kv_pool_tokens": 16, "threads": 1}},
            RuntimeExit.USAGE,
            "blocks",
        ),
    ],
)
def test_what_cannot_be_measured_is_said_with_the_next_step(
    make_request_for: MakeRequest,
    machine: FakeMachine,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    case: tuple[dict[str, object], int, str],
) -> None:
    changes, exit_code, words = case
    asked = make_request_for(arriving_prefill_repeats=0, **changes)
    assert main(written(tmp_path, asked.model_dump_json())) == exit_code
    out, err = capsys.readouterr()
    failure = BenchFailure.model_validate_json(out)
    assert words in failure.detail
    assert failure.advice
    # Whoever asked shows it, once.
    assert failure.detail not in err


def test_a_signal_ends_the_measurement_and_leaves_an_answer(
    make_request_for: MakeRequest, tmp_path: Path
) -> None:
    asked = make_request_for(
        workload=small_work(generated_tokens=60, agents=4).model_dump(), repeats={"serial": 100}
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "runtime.bench", *written(tmp_path, asked.model_dump_json())],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    while not process.stderr.readline().startswith("bench: round 1"):
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == RuntimeExit.CANCELLED, err
    assert json.loads(out)["kind"] == "cancelled"
    assert "Traceback" not in err
