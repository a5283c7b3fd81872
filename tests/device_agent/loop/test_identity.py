"""Who the agent is, on disk."""

import stat
from pathlib import Path

import pytest

from contract.agent_api import EnrollAnswer
from device_agent.floor.errors import FolderDamagedError
from device_agent.loop.identity import read_identity

IDENTITY = EnrollAnswer(device_agent_id="agt_01ARZ3NDEKTSV4RRFFQ69G5FAV", token="dyn_secret")


def test_no_file_is_no_identity(tmp_path: Path) -> None:
    assert read_identity(tmp_path / "identity.json") is None


def test_a_file_that_others_may_read_is_closed_again(tmp_path: Path) -> None:
    path = tmp_path / "identity.json"
    path.write_text(IDENTITY.model_dump_json())
    path.chmod(0o644)
    assert read_identity(path) == IDENTITY
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_damaged_file_is_named_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "identity.json"
    path.write_text("{")
    with pytest.raises(FolderDamagedError, match="enrol again"):
        read_identity(path)


def test_the_file_of_0_1_with_its_name_for_the_id_is_still_who_the_agent_is(tmp_path: Path) -> None:
    path = tmp_path / "identity.json"
    path.write_text(f'{{"agent_id":"{IDENTITY.device_agent_id}","token":"dyn_secret"}}')
    assert read_identity(path) == IDENTITY
