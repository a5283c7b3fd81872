"""What a host was calibrated to, as it is kept, and what is passed over."""

import json
import os
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from device_agent.floor.errors import CalibrationRunsError, ModelMissingError
from device_agent.floor.settings import AgentSettings
from device_agent.targets.host.calibrations import shelf_of
from device_agent.targets.host.target import HostTarget
from tests.fakes.calibrations import KEY, calibration, calibration_report


@pytest.fixture
def settings(tmp_path: Path) -> AgentSettings:
    chosen = AgentSettings.model_validate({"home": tmp_path, "disk_floor_bytes": 0})
    chosen.agent_home.mkdir(parents=True)
    chosen.models_folder.mkdir()
    (chosen.models_folder / "m.gguf").write_bytes(b"GGUF weights")
    return chosen


def test_what_was_kept_is_reported_with_the_device(settings: AgentSettings) -> None:
    target = HostTarget(settings)
    assert target.report().calibrations == []
    path = shelf_of(settings).keep(calibration_report())
    assert path.stat().st_mode & 0o077 == 0
    assert target.report().calibrations == [calibration()]


def test_a_new_measurement_replaces_that_of_the_same_kernels_and_precision_only(
    settings: AgentSettings,
) -> None:
    shelf = shelf_of(settings)
    other = calibration(key=KEY.model_copy(update={"dtype": "float32"}))
    shelf.keep(calibration_report())
    shelf.keep(calibration_report(other))
    shelf.keep(calibration_report(calibration(threads=1)))
    assert sorted(each.threads for each in shelf.current()) == [1, 2]


def test_another_model_under_the_name_makes_it_stale_and_one_warning_says_so(settings: AgentSettings) -> None:
    shelf = shelf_of(settings)
    shelf.keep(calibration_report())
    (settings.models_folder / "m.gguf").write_bytes(b"GGUF other weights")
    with capture_logs() as logs:
        assert shelf.current() == shelf.current() == []
    (line,) = logs
    assert line["log_level"] == "warning"
    assert "model_files" in line["reason"]
    assert "dynofarm calibrate" in line["advice"]


def test_a_touched_model_folder_is_noticed_too(settings: AgentSettings) -> None:
    folder = settings.models_folder / "hf"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_text("{}")
    shelf = shelf_of(settings)
    shelf.keep(calibration_report(calibration("hf")))
    assert [each.model for each in shelf.current()] == ["hf"]
    os.utime(folder / "model.safetensors", ns=(1, 1))
    assert shelf.current() == []


def test_a_removed_model_makes_it_stale(settings: AgentSettings) -> None:
    shelf = shelf_of(settings)
    shelf.keep(calibration_report())
    (settings.models_folder / "m.gguf").unlink()
    assert shelf.current() == []
    with pytest.raises(ModelMissingError):
        shelf.keep(calibration_report())


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: "{not json",
        lambda text: text.replace('"threads": 2', '"threads": 0'),
        lambda text: json.dumps({**json.loads(text), "unknown": 1}),
    ],
    ids=["emptied", "torn", "no thread", "a field of another version"],
)
def test_a_bad_file_is_passed_over_with_a_warning_and_written_anew(settings: AgentSettings, damage) -> None:
    shelf = shelf_of(settings)
    path = shelf.keep(calibration_report())
    path.write_text(damage(path.read_text()))
    with capture_logs() as logs:
        assert HostTarget(settings).report().ready
        assert shelf.current() == []
    assert {line["event"] for line in logs} == {"calibration_ignored"}
    assert all("does not parse" in line["reason"] for line in logs)
    assert shelf.keep(calibration_report()) == path
    assert shelf.current() == [calibration()]


def test_another_version_of_the_agent_makes_it_stale(settings: AgentSettings) -> None:
    shelf = shelf_of(settings)
    path = shelf.keep(calibration_report())
    kept = json.loads(path.read_text())
    kept["circumstances"]["agent_version"] = "0.0.1"
    path.write_text(json.dumps(kept))
    with capture_logs() as logs:
        assert shelf.current() == []
    assert "agent_version: 0.0.1 when it was measured" in logs[0]["reason"]


def test_while_one_measures_the_device_takes_no_work_and_no_second_one_begins(
    settings: AgentSettings,
) -> None:
    target, shelf = HostTarget(settings), shelf_of(settings)
    with shelf.measuring():
        report = target.report()
        assert (report.ready, report.reasons) == (False, ["calibrating"])
        with pytest.raises(CalibrationRunsError), shelf_of(settings).measuring():
            pass
    assert target.report().ready


def test_an_agent_that_looks_is_not_taken_for_a_second_measurement(settings: AgentSettings) -> None:
    shelf, stop = shelf_of(settings), threading.Event()
    with shelf.measuring():
        pass

    def look() -> None:
        while not stop.is_set():
            _ = shelf.is_measuring

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for _ in range(20):
            with shelf_of(settings).measuring():
                pass
    finally:
        stop.set()
        looking.join(10)
