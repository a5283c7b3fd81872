"""A real calibration of a tiny model, in this process and in one of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from contract.calibration import (
    CALIBRATED_OPTIONS,
    CALIBRATION_LINE,
    CalibrationFailed,
    CalibrationFinished,
    CalibrationStep,
)
from contract.jobs import ArmSpec
from contract.runtime_link import RuntimeExit
from runtime.calibration import cli
from runtime.calibration.calibrator import CalibrationRequest, Calibrator, says_nothing, thread_candidates
from runtime.calibration.probe import ProbeSizes, SpeedProbe, probe_sizes
from runtime.engine.compute import decide_compute
from runtime.host.machine import this_machine
from runtime.measured.conditions import calibration_key, model_digest
from runtime.measured.options import decide_options
from tests.fakes.loaded_model import load_model
from tests.fakes.tiny_model import save_tiny_model


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_every_option_is_measured_and_the_result_holds_here(tiny_model: Path) -> None:
    steps: list[CalibrationStep] = []
    request = CalibrationRequest(model="tiny", model_path=tiny_model, limit_s=2.0)
    report = Calibrator(request, steps.append).run()
    assert [measured.option for measured in report.options] == list(CALIBRATED_OPTIONS)
    for measured in report.options:
        values = [candidate.value for candidate in measured.candidates]
        assert measured.chosen in values
        assert values == sorted(values)
        assert getattr(report.calibration, measured.option) == measured.chosen
        (chosen,) = [each for each in measured.candidates if each.value == measured.chosen]
        assert chosen.cost_ratio == 1.0
        assert all(value > 0 for value in chosen.figures.values())
    assert 0 <= report.calibration.others_cpu_percent <= 100
    assert {step.message.partition(",")[0] for step in steps} >= set(CALIBRATED_OPTIONS)
    assert all(step.limit_s == 2.0 for step in steps)
    arm = ArmSpec(arm="paged", mode="paged")
    machine = this_machine()
    here = calibration_key(decide_compute(arm.engine, machine), machine, model_digest(tiny_model))
    assert set(decide_options(arm, here, report.calibration).origins.values()) == {"calibrated"}


def test_a_limit_that_is_over_still_gives_each_option_one_round(tiny_model: Path) -> None:
    report = Calibrator(CalibrationRequest("tiny", tiny_model, limit_s=0.001), lambda step: None).run()
    for measured in report.options:
        assert {candidate.rounds for candidate in measured.candidates} == {1}
    unclear = {measured.option for measured in report.options if len(measured.candidates) > 1}
    assert set(report.calibration.unclear) == unclear
    assert says_nothing(report) == bool(unclear)


def test_a_calibration_of_one_unclear_round_is_not_a_result(
    tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = cli.main(["--model", "tiny", "--model-path", str(tiny_model), "--limit-s", "0.001"])
    assert code == RuntimeExit.USAGE
    last = CALIBRATION_LINE.validate_json(capsys.readouterr().out.splitlines()[-1])
    assert isinstance(last, CalibrationFailed)
    assert (last.code, last.is_usage) == ("calibration-unclear", True)
    assert "--limit-s 90" in last.next_step


def test_a_context_smaller_than_the_probe_s_own_work_is_enough(tmp_path: Path) -> None:
    model = save_tiny_model(tmp_path / "short", max_position_embeddings=40)
    report = Calibrator(CalibrationRequest("short", model, limit_s=0.001), lambda step: None).run()
    assert report.calibration.max_batch_sequences >= 1


@pytest.mark.parametrize("pool_bytes", [0, 1 << 16, 1 << 20, 1 << 40])
def test_the_probe_takes_no_more_memory_than_it_may_and_always_works(
    tiny_model: Path, pool_bytes: int
) -> None:
    model = load_model(tiny_model).model
    sizes = probe_sizes(model, 32, pool_bytes)
    assert sizes.blocks * 32 * model.config.kv_format(4).token_bytes <= max(pool_bytes, 2 * 32 * 1024)
    probe = SpeedProbe(model, sizes)
    assert probe.prefill_s(sizes.prompt_tokens, 16) > 0
    assert probe.decode_step_s(sizes.sequences, 2) > 0
    probe.close()


def test_a_pool_is_as_large_as_the_larger_of_its_two_uses() -> None:
    assert ProbeSizes(prompt_tokens=33, shared_tokens=0, sequences=1).blocks == 2
    assert ProbeSizes(prompt_tokens=33, shared_tokens=64, sequences=8).blocks == 10


@pytest.mark.parametrize(
    ("cores", "candidates"),
    [(1, [1]), (4, [1, 2, 3, 4]), (8, [*range(1, 9)]), (12, [1, 2, 4, 6, 8, 9, 11, 12])],
)
def test_thread_candidates_reach_from_one_to_every_core(cores: int, candidates: list[int]) -> None:
    assert thread_candidates(cores) == candidates
    assert len(thread_candidates(192)) < 16


def test_the_command_says_steps_and_then_the_result(
    tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = cli.main(["--model", "tiny", "--model-path", str(tiny_model), "--limit-s", "30"])
    assert code == RuntimeExit.COMPLETED
    *steps, last = map(CALIBRATION_LINE.validate_json, capsys.readouterr().out.splitlines())
    assert steps
    assert all(isinstance(step, CalibrationStep) for step in steps)
    assert isinstance(last, CalibrationFinished)
    assert last.file is None


def test_a_model_that_cannot_be_loaded_is_told_of_with_what_to_try(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = cli.main(["--model", "none", "--model-path", str(tmp_path / "none.gguf")])
    assert code == RuntimeExit.FAILED
    last = CALIBRATION_LINE.validate_json(capsys.readouterr().out.splitlines()[-1])
    assert isinstance(last, CalibrationFailed)
    assert last.code == "model-file-missing"
    assert last.next_step


def test_a_bad_name_is_refused_before_anything_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--model", "../x", "--model-path", "/"])
    assert ended.value.code == RuntimeExit.USAGE
    assert "not the name of a model" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_process_without_a_result(tiny_model: Path, number: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "runtime", "calibrate", "--model", "tiny", "--model-path", str(tiny_model)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    try:
        first = process.stdout.readline()
        process.send_signal(number)
        rest, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait(10)
    assert json.loads(first)["kind"] == "step"
    assert process.returncode == RuntimeExit.CANCELLED
    assert b"finished" not in rest
    assert b"Traceback" not in errors
