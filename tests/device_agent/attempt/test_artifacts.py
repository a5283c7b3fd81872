"""Files of an attempt: what is kept of them, and what is removed first."""

from pathlib import Path

import pytest

from contract.artifacts import ArtifactKind
from device_agent.attempt.artifacts import (
    MAX_LOG_BYTES,
    MAX_REPORT_BYTES,
    MAX_REPORTS,
    keep_artifacts,
    kind_of,
    without_secrets,
)
from device_agent.floor.attempt_folder import AttemptFolder
from tests.device_agent.floor.test_attempt_folder import grant


@pytest.fixture
def folder(tmp_path: Path) -> AttemptFolder:
    folder = AttemptFolder.create(tmp_path, grant())
    folder.reports_path.mkdir()
    return folder


def test_the_log_and_the_reports_are_kept_with_names_that_say_their_kind(folder: AttemptFolder) -> None:
    folder.log_path.write_bytes(b"starts\n")
    (folder.reports_path / "JetsamEvent-2026-11-29-120000.ips").write_bytes(b"{}")
    (folder.reports_path / "Runner 2026.ips.synced").write_bytes(b"{}")
    kept = keep_artifacts(folder)
    assert {ref.name: kind_of(ref.name) for ref in kept.refs} == {
        "runtime.log": ArtifactKind.RUNTIME_LOG,
        "jetsamevent-2026-11-29-120000.ips": ArtifactKind.JETSAM_REPORT,
        "runner-2026.ips.synced": ArtifactKind.CRASH_REPORT,
    }
    assert kept.left_out == ()
    assert (folder.artifacts_path / "runtime.log").read_bytes() == b"starts\n"


def test_of_a_long_log_the_end_is_kept_and_the_loss_is_said(folder: AttemptFolder) -> None:
    folder.log_path.write_bytes(b"x" * MAX_LOG_BYTES + b" the end")
    (ref,) = keep_artifacts(folder).refs
    content = (folder.artifacts_path / ref.name).read_bytes()
    assert content.startswith(b"[8 bytes before this were left out]")
    assert content.endswith(b" the end")


def test_reports_beyond_the_bounds_are_left_out_and_counted(folder: AttemptFolder) -> None:
    for number in range(MAX_REPORTS + 2):
        (folder.reports_path / f"a{number:02d}.ips").write_bytes(b"{}")
    (folder.reports_path / "a00.ips").write_bytes(b"x" * (MAX_REPORT_BYTES + 1))
    kept = keep_artifacts(folder)
    assert len(kept.refs) == MAX_REPORTS - 1
    assert len(kept.left_out) == 3


def test_a_disk_that_takes_nothing_loses_the_file_and_not_the_result(folder: AttemptFolder) -> None:
    folder.log_path.write_bytes(b"starts\n")
    folder.artifacts_path.write_bytes(b"in the way")
    kept = keep_artifacts(folder)
    assert kept.refs == ()
    assert "runtime.log was not kept" in kept.left_out[0]


@pytest.mark.parametrize(
    "secret",
    [
        "00008140-001A2B3C4D5E6F70",
        "a1b2c3d4-0000-4000-8000-1234567890ab",
        "me@example.org",
        "/".join(("", "home", "alice")),
        "/".join(("", "Users", "alice")),
        "authorization: s3cr3t-of-mine",
        "Bearer s3cr3t-of-mine",
        "DYNOFARM_TOKEN=s3cr3t-of-mine",
        '"password": "s3cr3t-of-mine"',
    ],
)
def test_tokens_identifiers_and_homes_are_removed(secret: str) -> None:
    text = without_secrets(f"before {secret} after".encode()).decode()
    assert secret not in text
    assert "s3cr3t" not in text
    assert "alice" not in text
    assert text.startswith("before ")
    assert text.endswith(" after")


def test_what_explains_an_end_stays() -> None:
    line = b"Traceback: RuntimeError: 12345 tokens, pool of 4096 blocks, iPhone17,1"
    assert without_secrets(line) == line
