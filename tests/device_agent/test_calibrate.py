"""The command behind `dynofarm calibrate`, with a process that speaks as a runtime would."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from pydantic import BaseModel

from contract.calibration import CALIBRATION_LINE, CalibrationFailed, CalibrationFinished
from device_agent.calibrate import CalibrateExit, run
from device_agent.floor.attempt_folder import ProcessRecord
from tests.fakes.calibrations import STEP, as_setting, calibration, calibration_report, speaking_process

FINISHED = CalibrationFinished(report=calibration_report())
CORRUPT = CalibrationFailed(code="model-corrupt", detail="cut short", next_step="copy it again")
Calibrate = Callable[..., tuple[CalibrateExit, list[BaseModel]]]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    (home / "models").mkdir(parents=True)
    (home / "models" / "m.gguf").write_bytes(b"GGUF weights")
    return home


@pytest.fixture
def calibrate(home: Path, monkeypatch: pytest.MonkeyPatch) -> Calibrate:
    """Runs the command in this process: exit code and lines."""

    def go(command: list[str], *arguments: str) -> tuple[CalibrateExit, list[BaseModel]]:
        monkeypatch.setenv("DYNOFARM_RUNTIME_COMMAND", as_setting(command))
        said: list[BaseModel] = []
        return run(["--home", str(home), "--model", "m", *arguments], said.append), said

    return go


def kept_files(home: Path) -> list[Path]:
    return sorted((home / "agent/calibrations").glob("*.json"))


def test_steps_are_passed_on_and_the_result_is_kept_where_the_last_line_says(
    tmp_path: Path, home: Path, calibrate: Calibrate
) -> None:
    code, said = calibrate(speaking_process(tmp_path, [STEP, STEP, FINISHED]))
    assert code is CalibrateExit.STORED
    *steps, last = said
    assert steps == [STEP, STEP]
    assert isinstance(last, CalibrationFinished)
    assert [str(path) for path in kept_files(home)] == [last.file]
    assert last.report.calibration == calibration()


@pytest.mark.parametrize(
    ("speaks", "told"),
    [
        (([STEP],), ("calibration-broke", "without a result, exit code 0")),
        (([STEP], "sys.exit(3)"), ("calibration-broke", "exit code 3")),
        ((["who are you"], "time.sleep(60)"), ("calibration-broke", "none of ours: 'who are you'")),
        (([CORRUPT], "sys.exit(1)"), ("model-corrupt", "cut short")),
    ],
)
def test_a_runtime_that_fails_is_told_of_and_nothing_is_kept(
    tmp_path: Path, calibrate: Calibrate, speaks: tuple[list[BaseModel], str], told: tuple[str, str]
) -> None:
    exit_code, said = calibrate(speaking_process(tmp_path, *speaks))
    assert exit_code is CalibrateExit.INFRASTRUCTURE
    last = said[-1]
    assert isinstance(last, CalibrationFailed)
    assert last.code == told[0]
    assert told[1] in last.detail
    assert last.next_step
    assert kept_files(tmp_path / "home") == []


def test_a_runtime_that_does_not_start_is_named(tmp_path: Path, calibrate: Calibrate) -> None:
    exit_code, said = calibrate([str(tmp_path / "nowhere")])
    assert exit_code is CalibrateExit.INFRASTRUCTURE
    assert "nowhere does not start" in str(said[-1])


def test_an_unknown_model_is_a_mistake_that_lists_the_known_ones(
    tmp_path: Path, calibrate: Calibrate
) -> None:
    exit_code, said = calibrate(speaking_process(tmp_path, [FINISHED]), "--model", "other")
    assert exit_code is CalibrateExit.USAGE
    last = said[-1]
    assert isinstance(last, CalibrationFailed)
    assert last.code == "model-missing"
    assert "there are: m" in last.detail


def test_it_gives_way_to_an_attempt_on_this_machine(tmp_path: Path, home: Path, calibrate: Calibrate) -> None:
    folder = home / "agent/attempts/att_01KA0000000000000000000000"
    folder.mkdir(parents=True)
    runtime = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", str(folder)])
    try:
        started_s = psutil.Process(runtime.pid).create_time() - psutil.boot_time()
        record = ProcessRecord(pid=runtime.pid, started_s=started_s, memory_kills=None)
        (folder / "process.json").write_text(record.model_dump_json())
        exit_code, said = calibrate(speaking_process(tmp_path, [FINISHED]))
    finally:
        runtime.kill()
        runtime.wait(10)
    assert exit_code is CalibrateExit.INFRASTRUCTURE
    assert folder.name in str(said[-1])
    assert calibrate(speaking_process(tmp_path, [FINISHED]))[0] is CalibrateExit.STORED


def test_an_attempt_that_begins_meanwhile_ends_it(tmp_path: Path, home: Path, calibrate: Calibrate) -> None:
    folder = home / "agent/attempts/att_01KA0000000000000000000000"
    folder.mkdir(parents=True)
    own = psutil.Process()
    record = ProcessRecord(
        pid=own.pid, started_s=own.create_time() - psutil.boot_time(), memory_kills=None
    ).model_dump_json()
    # The process itself plays the attempt's runtime: its command line names the folder.
    path = folder / "process.json"
    begins = (
        f"import subprocess, json, psutil\n"
        f"child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)', {str(folder)!r}])\n"
        f"record = json.loads({record!r})\n"
        f"record['pid'] = child.pid\n"
        f"record['started_s'] = psutil.Process(child.pid).create_time() - psutil.boot_time()\n"
        f"open({str(path)!r}, 'w').write(json.dumps(record))\n"
        f"time.sleep(60)"
    )
    exit_code, said = calibrate(speaking_process(tmp_path, [STEP], begins))
    runtime_pid = ProcessRecord.model_validate_json(path.read_text()).pid
    os.kill(runtime_pid, signal.SIGKILL)
    assert exit_code is CalibrateExit.INFRASTRUCTURE
    assert "attempt-runs" in str(said[-1])
    assert kept_files(home) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_its_runtime_and_keeps_nothing(tmp_path: Path, home: Path, number: int) -> None:
    pid_file = tmp_path / "pid"
    then = f"open({str(pid_file)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)"
    command = speaking_process(tmp_path, [STEP], then)
    process = subprocess.Popen(
        [sys.executable, "-m", "device_agent.calibrate", "--home", str(home), "--model", "m"],
        env={**os.environ, "DYNOFARM_RUNTIME_COMMAND": as_setting(command)},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        assert CALIBRATION_LINE.validate_json(process.stdout.readline()) == STEP
        deadline_s = time.monotonic() + 30
        while not (pid_file.exists() and pid_file.read_text()) and time.monotonic() < deadline_s:
            time.sleep(0.02)
        process.send_signal(number)
        assert process.wait(30) == CalibrateExit.CANCELLED
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()
    assert not psutil.pid_exists(int(pid_file.read_text()))
    assert kept_files(home) == []
