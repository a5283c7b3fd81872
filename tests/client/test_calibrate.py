"""`dynofarm calibrate` as a process, with one that speaks as the device agent would."""

import io
import json
import signal
import time
from pathlib import Path

import psutil
import pytest
from rich.console import Console, RenderableType

from client.render_calibration import calibration_view
from client.render_lists import device_view, devices_table
from contract.calibration import CalibrationFailed, CalibrationFinished
from tests.client.processes import environment, finish, start, wait_for
from tests.fakes.calibrations import (
    STEP,
    as_setting,
    calibration,
    calibration_report,
    speaking_process,
)
from tests.fakes.rest_controller import host_device

FINISHED = CalibrationFinished(report=calibration_report(), file="/kept.json")


def shown(view: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=200, color_system=None, markup=False, emoji=False)
    console.print(view)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def env(home: Path, lines: list[object], then: str = "") -> dict[str, str]:
    command = speaking_process(home, lines, then)
    return environment(home, DYNOFARM_CALIBRATE_COMMAND=as_setting(command))


def test_json_is_the_whole_report_and_progress_goes_to_standard_error(tmp_path: Path) -> None:
    code, stdout, stderr = finish(start(["calibrate", "--json"], env(tmp_path, [STEP, STEP, FINISHED])))
    assert code == 0
    found = CalibrationFinished.model_validate_json(stdout)
    assert found == FINISHED
    assert stderr.count("threads, round 1") == 1


def test_the_options_travel(tmp_path: Path) -> None:
    arguments = tmp_path / "arguments"
    then = f"open({str(arguments)!r}, 'w').write(repr(sys.argv[1:]))"
    settings = env(tmp_path, [], then + f"\nprint({FINISHED.model_dump_json()!r})")
    code, stdout, _ = finish(start(["calibrate", "--model", "m", "--limit-s", "12"], settings))
    assert code == 0
    assert arguments.read_text() == repr(["--home", str(tmp_path), "--model", "m", "--limit-s", "12.0"])
    assert "threads" in stdout
    assert "2 chosen" in stdout
    assert "kept in /kept.json" in stdout


@pytest.mark.parametrize(
    ("failed", "code"),
    [
        (CalibrationFailed(code="model-missing", detail="no 'x'", next_step="y", is_usage=True), 2),
        (CalibrationFailed(code="attempt-runs", detail="att_1 runs", next_step="wait"), 4),
    ],
)
def test_what_went_wrong_is_the_answer_with_its_exit_code(
    tmp_path: Path, failed: CalibrationFailed, code: int
) -> None:
    exit_code, stdout, stderr = finish(start(["calibrate", "--json"], env(tmp_path, [STEP, failed])))
    assert exit_code == code
    answer = json.loads(stdout)
    assert (answer["error"], answer["detail"], answer["next_step"]) == (
        failed.code,
        failed.detail,
        failed.next_step,
    )
    assert f"what to do: {failed.next_step}" in stderr


@pytest.mark.parametrize("lines", [[], ["not ours"]])
def test_a_process_without_a_result_is_an_infrastructure_error(tmp_path: Path, lines: list[object]) -> None:
    exit_code, stdout, _ = finish(start(["calibrate", "--json"], env(tmp_path, lines)))
    assert exit_code == 4
    assert json.loads(stdout)["error"] == "calibration-failed"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_ends_the_measurement_first(tmp_path: Path, number: int, code: int) -> None:
    pid_file, ended = tmp_path / "pid", tmp_path / "ended"
    then = (
        f"signal.signal(signal.SIGTERM, lambda *_: (open({str(ended)!r}, 'w').close(), sys.exit(130)))\n"
        f"open({str(pid_file)!r}, 'w').write(str(os.getpid()))\n"
        "time.sleep(60)"
    )
    process = start(["calibrate"], env(tmp_path, [STEP], then))
    pid = int(wait_for(lambda: pid_file.exists() and pid_file.read_text()))
    time.sleep(0.1)
    process.send_signal(number)
    exit_code, stdout, stderr = finish(process)
    assert exit_code == code
    assert stdout == ""
    assert "Traceback" not in stderr
    assert ended.exists()
    assert not psutil.pid_exists(pid)


def test_a_busy_machine_and_an_unclear_choice_are_said() -> None:
    found = calibration(others_cpu_percent=61.0, unclear=["prefill_chunk_tokens"])
    text = shown(calibration_view(CalibrationFinished(report=calibration_report(found))))
    assert "others used 61 % of the processor" in text
    assert "not clear in the time there was: prefill_chunk_tokens" in text
    quiet = shown(calibration_view(FINISHED))
    assert "others used" not in quiet
    assert "not clear" not in quiet


def test_devices_show_what_they_were_calibrated_to() -> None:
    device = host_device().model_copy(update={"models": ["m", "n"], "calibrations": [calibration()]})
    assert "m (calibrated), n" in shown(devices_table([device]))
    assert "m (native, bfloat16): threads 2, batch 16, prefill chunk 256" in shown(device_view(device))
