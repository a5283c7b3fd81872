"""The commands of admins and of files, against the real controller."""

import asyncio
import hashlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from structlog.testing import capture_logs
from typer.testing import CliRunner

from client.cli import app
from client.durations import duration_s
from client.errors import UsageError
from contract.administration import AuditEntry, DeviceHistory, NewToken, TokenView
from contract.agent_api import Lease
from tests.client.conftest import Outcome
from tests.fakes.farm import Farm
from tests.fakes.session import Lab

LOG = b"loading weights\n"


@dataclass
class Served:
    """The real application on a port, with one device agent, its host, and the command line."""

    lab: Lab
    url: str
    home: Path

    def cli(self, *arguments: str, token: str = "") -> Outcome:
        env = {
            "DYNOFARM_CONTROLLER": self.url,
            "DYNOFARM_TOKEN": token or self.lab.farm.tokens["admin"],
            "DYNOFARM_HOME": str(self.home),
            "COLUMNS": "200",
        }
        result = CliRunner().invoke(app, list(arguments), env=env)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return Outcome(result.exit_code, result.stdout, result.stderr)

    def json(self, *arguments: str) -> Any:
        outcome = self.cli(*arguments, "--json")
        assert outcome.exit_code == 0, outcome.stderr
        return json.loads(outcome.stdout)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    farm = Farm.at(tmp_path)
    lab = asyncio.run(Lab.of(farm))
    # The log of the application would stand in the standard output of the commands.
    with socket.socket() as listening, capture_logs():
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(farm.app, lifespan="off", log_level="error"))
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        yield Served(lab, f"http://127.0.0.1:{listening.getsockname()[1]}", tmp_path / "home")
        server.should_exit = True
        thread.join(10)
    farm.context.sessions.close()


def with_files(lab: Lab) -> tuple[str, Lease]:
    """A run whose attempt left a log and a crash report."""

    async def happen() -> tuple[str, Lease]:
        run = await lab.submit()
        lease = await lab.claim()
        await lab.agent.put_artifact(lease, "runtime.log", LOG)
        await lab.agent.put_artifact(lease, "crash.ips", b"\xff\x00")
        return run.run_id, lease

    return asyncio.run(happen())


def test_the_files_of_a_run_are_listed_and_saved_under_safe_names(served: Served, tmp_path: Path) -> None:
    run_id, lease = with_files(served.lab)
    assert "runtime log" in served.cli("artifacts", run_id).stdout
    folder = tmp_path / "saved"
    saved = served.json("artifacts", run_id, "--download", str(folder))
    assert {each["sha256"] for each in saved} >= {hashlib.sha256(LOG).hexdigest()}
    names = {f"{lease.attempt_id}-crash.ips", f"{lease.attempt_id}-runtime.log"}
    assert {path.name for path in folder.iterdir()} == names
    assert (folder / f"{lease.attempt_id}-runtime.log").read_bytes() == LOG


def test_saving_again_changes_nothing_and_another_file_is_never_replaced(
    served: Served, tmp_path: Path
) -> None:
    run_id, lease = with_files(served.lab)
    assert served.cli("artifacts", run_id, "-d", str(tmp_path / "a")).exit_code == 0
    assert served.cli("artifacts", run_id, "-d", str(tmp_path / "a")).exit_code == 0
    mine = tmp_path / "a" / f"{lease.attempt_id}-runtime.log"
    mine.write_bytes(b"mine")
    refused = served.cli("artifacts", run_id, "-d", str(tmp_path / "a"))
    assert refused.exit_code == 2
    assert f"{mine.name} exists" in refused.stderr.replace("\n", "")
    assert mine.read_bytes() == b"mine"


def test_a_run_without_files_says_so(served: Served) -> None:
    run = asyncio.run(served.lab.submit())
    assert "no files" in served.cli("artifacts", run.run_id).stdout
    assert served.json("artifacts", run.run_id) == []


def test_a_device_is_reserved_released_and_its_history_names_the_person(served: Served) -> None:
    reserved = served.cli("devices", "reserve", "host-1", "--for", "2h", "--reason", "a look")
    assert "reserved until" in reserved.stdout
    assert served.json("devices", "list", "--state", "reserved")[0]["device_id"] == "host-1"
    assert served.json("devices", "list", "--text", "elsewhere") == []
    assert served.cli("devices", "release", "host-1", "-r", "done").exit_code == 0
    history = DeviceHistory.model_validate(served.json("devices", "history", "host-1"))
    assert [(each.cause, each.actor) for each in history.transitions[:2]] == [
        ("release_ordered", "admin"),
        ("reserved", "admin"),
    ]
    assert "a look" in served.cli("devices", "history", "host-1").stdout


def test_a_busy_device_that_is_taken_out_says_that_it_waits(served: Served) -> None:
    _, lease = with_files(served.lab)
    outcome = served.cli("devices", "quarantine", "host-1", "-r", "odd")
    assert "leased, then quarantined" in outcome.stdout
    assert f"it becomes quarantined when {lease.attempt_id} has ended" in outcome.stderr.replace("\n", " ")


def test_a_device_is_retired_and_a_device_agent_drained_and_resumed(served: Served) -> None:
    assert served.json("devices", "retire", "host-1", "-r", "broken")["state"] == "retired"
    (agent,) = served.json("device-agents", "list")
    for command, draining in (("drain", True), ("resume", False)):
        changed = served.json("device-agents", command, agent["device_agent_id"], "-r", "new disk")
        assert changed["draining"] is draining
    assert "lab-1" in served.cli("device-agents", "list").stdout


def test_a_token_is_made_listed_and_revoked(served: Served) -> None:
    made = NewToken.model_validate(
        served.json("tokens", "create", "ci", "--scope", "viewer", "--valid-for", "7d")
    )
    assert served.cli("devices", "list", token=made.token).exit_code == 0
    listing = served.cli("tokens", "list").stdout
    assert made.token_id in listing
    assert made.token not in listing
    revoked = TokenView.model_validate(served.json("tokens", "revoke", made.token_id))
    assert revoked.revoked_at is not None
    assert served.cli("devices", "list", token=made.token).exit_code == 2
    assert made.token_id not in {each["token_id"] for each in served.json("tokens", "list")}
    assert made.token_id in {each["token_id"] for each in served.json("tokens", "list", "--all")}


def test_an_enrolment_token_is_made_on_the_command_line(served: Served) -> None:
    made = NewToken.model_validate(served.json("tokens", "create", "shelf 3", "--enrolment"))

    async def enrol() -> int:
        async with served.lab.farm.client(made.token) as client:
            return (await client.post("/device-agent/enroll", json={"agent_name": "lab-9"})).status_code

    assert asyncio.run(enrol()) == 200


@pytest.mark.parametrize(
    "arguments",
    [
        ("tokens", "create", "x"),
        ("tokens", "create", "x", "--scope", "viewer", "--enrolment"),
        ("tokens", "create", "x", "--enrolment", "--valid-for", "forever"),
        ("tokens", "create", "x", "--scope", "viewer", "--valid-for", "soon"),
        ("tokens", "create", "", "--scope", "viewer"),
        ("tokens", "revoke", "no-id"),
        ("devices", "reserve", "host-1", "--for", "0s", "-r", "x"),
        ("devices", "reserve", "host-1", "--for", "60d", "-r", "x"),
        ("audit", "--since", "yesterday"),
    ],
)
def test_a_wrong_option_is_usage_and_names_what_to_do(served: Served, arguments: tuple[str, ...]) -> None:
    outcome = served.cli(*arguments)
    assert outcome.exit_code == 2
    assert "error: " in outcome.stderr


def test_the_audit_shows_the_last_acts_and_filters_them(served: Served) -> None:
    run = asyncio.run(served.lab.submit())
    served.cli("cancel", run.run_id)
    entries = [AuditEntry.model_validate(each) for each in served.json("audit", "--subject", run.run_id)]
    assert [(each.actor, each.action) for each in entries] == [("admin", "cancel"), ("submitter", "submit")]
    assert len(served.json("audit", "--limit", "1", "--since", "1h")) == 1
    assert "cancel" in served.cli("audit", "--actor", "admin").stdout


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("1.5h", 5400), ("7d", 604_800)])
def test_a_duration_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert duration_s(text, "--for") == seconds


@pytest.mark.parametrize("text", ["", "90", "h", "-1h", "0m", "1e3s", "1 week", "٣h"])
def test_what_is_not_a_duration_is_named_with_its_option(text: str) -> None:
    with pytest.raises(UsageError, match="--for"):
        duration_s(text, "--for")


def test_a_device_is_named_by_a_beginning_or_an_end_that_only_it_has(served: Served) -> None:
    for part in ("host-1", "host", "st-1", "…st-1"):
        assert served.json("devices", "show", part)["device_id"] == "host-1"
    unknown = served.cli("devices", "show", "ost")
    assert unknown.exit_code == 2
    assert "ost" in unknown.stderr
