"""What an attempt leaves on disk."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from contract.agent_api import Lease, ResultRequest
from contract.jobs import AttemptSpec
from contract.runtime_link import SPEC_FILE, LeaseFile
from device_agent.floor.attempt_folder import AttemptFolder, Grant, ProcessRecord, Settlement, attempt_folders
from device_agent.floor.errors import FolderDamagedError
from tests.fakes.attempts import attempt_spec


def grant() -> Grant:
    spec = attempt_spec()
    lease = Lease(
        lease_id="lea_01ARZ3NDEKTSV4RRFFQ69G5FAV",
        attempt_id=spec.attempt_id,
        device_id="host",
        fence=3,
        ttl_s=60,
        renew_interval_s=20,
        margin_s=3,
        spec=spec,
    )
    return Grant(claim_id="clm_01ARZ3NDEKTSV4RRFFQ69G5FAV", lease=lease)


def test_a_new_folder_has_the_grant_and_the_runtime_s_spec_and_nothing_else(tmp_path: Path) -> None:
    given = grant()
    folder = AttemptFolder.create(tmp_path, given)
    assert folder.grant() == given
    assert AttemptSpec.model_validate_json((folder.path / SPEC_FILE).read_bytes()) == given.lease.spec
    assert [folder.lease_file(), folder.process(), folder.result(), folder.settlement()] == [None] * 4
    assert not folder.start_intended
    assert folder.path.stat().st_mode & 0o077 == 0


def test_an_attempt_is_created_once(tmp_path: Path) -> None:
    given = grant()
    AttemptFolder.create(tmp_path, given)
    with pytest.raises(FileExistsError):
        AttemptFolder.create(tmp_path, given)


def test_everything_written_is_read_again(tmp_path: Path) -> None:
    folder = AttemptFolder.create(tmp_path, grant())
    lease, process = LeaseFile(deadline_mono_ns=5), ProcessRecord(pid=1, started_s=2.5, memory_kills=None)
    result = ResultRequest(fence=3, outcome="succeeded", last_seq={})
    settlement = Settlement(at=datetime(2026, 1, 1, tzinfo=UTC), state="succeeded")
    folder.write_lease_file(lease)
    folder.write_process(process)
    folder.write_result(result)
    folder.settle(settlement)
    again = AttemptFolder(folder.path)
    assert (again.lease_file(), again.process(), again.result()) == (lease, process, result)
    assert again.settlement() == settlement


def test_half_made_folders_of_a_killed_agent_are_removed(tmp_path: Path) -> None:
    folder = AttemptFolder.create(tmp_path, grant())
    (tmp_path / ".new-abc").mkdir()
    assert [found.path for found in attempt_folders(tmp_path)] == [folder.path]
    assert not (tmp_path / ".new-abc").exists()


def test_a_file_that_somebody_changed_is_named(tmp_path: Path) -> None:
    folder = AttemptFolder.create(tmp_path, grant())
    (folder.path / "lease.json").write_text("{}")
    with pytest.raises(FolderDamagedError, match=r"lease\.json"):
        folder.lease_file()
    (folder.path / "grant.json").unlink()
    with pytest.raises(FolderDamagedError, match=r"grant\.json"):
        folder.grant()


def test_an_attempt_that_0_1_began_is_given_up_with_what_to_do(tmp_path: Path) -> None:
    folder = AttemptFolder.create(tmp_path, grant())
    path = folder.path / "grant.json"
    written = json.loads(path.read_bytes())
    for arm in written["lease"]["spec"]["arms"]:
        arm["calibration"] = None
    path.write_text(json.dumps(written))
    with pytest.raises(FolderDamagedError, match=r"arms\.0\.calibration.*another version.*remove the folder"):
        folder.grant()
