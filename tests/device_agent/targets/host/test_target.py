"""This machine as a device."""

from pathlib import Path

import pytest

from contract.states import TargetKind
from device_agent.floor.errors import FolderDamagedError
from device_agent.floor.settings import AgentSettings
from device_agent.targets.host.target import HostTarget
from device_agent.targets.port import Target


def settings(home: Path, **changes: object) -> AgentSettings:
    chosen = AgentSettings.model_validate({"home": home, "disk_floor_bytes": 0, **changes})
    chosen.agent_home.mkdir(parents=True, exist_ok=True)
    chosen.models_folder.mkdir(parents=True, exist_ok=True)
    return chosen


def test_the_device_is_the_same_after_a_restart_and_another_in_another_home(tmp_path: Path) -> None:
    first, again = HostTarget(settings(tmp_path)), HostTarget(settings(tmp_path))
    assert first.device_id == again.device_id
    assert HostTarget(settings(tmp_path / "other")).device_id != first.device_id


def test_the_host_is_a_target(tmp_path: Path) -> None:
    target: Target = HostTarget(settings(tmp_path))
    report = target.report()
    assert (report.kind, report.device_id, report.virtual) == (TargetKind.HOST, target.device_id, False)
    assert report.os_name
    assert report.device_model


def test_a_full_disk_makes_it_unready_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models/m.gguf").write_bytes(b"GGUF")
    report = HostTarget(settings(tmp_path, disk_floor_bytes=1 << 60)).report()
    assert (report.ready, report.reasons) == (False, ["storage_host"])


def test_an_emptied_id_is_refused_and_not_replaced(tmp_path: Path) -> None:
    chosen = settings(tmp_path)
    (chosen.agent_home / "host-device-id").write_text("")
    with pytest.raises(FolderDamagedError, match="new device"):
        HostTarget(chosen)
