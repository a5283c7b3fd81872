"""The first admin's token: made once, kept, and made anew when the file or the database was lost."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import delete

from controller.admin_token import enrolment_token, ensure_admin_token
from controller.db.models import TokenRow
from tests.fakes.farm import Farm

pytestmark = pytest.mark.anyio


def controller(command: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "controller", command],
        env={**os.environ, **settings},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=120,
    )


async def _status(farm: Farm, token: str) -> int:
    async with farm.client(token) as client:
        return (await client.post("/v1/enrollment-tokens")).status_code


async def test_it_is_an_admin_s_and_only_its_user_can_read_it(farm: Farm, tmp_path: Path) -> None:
    path = ensure_admin_token(farm.context, tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert await _status(farm, path.read_text().strip()) == 201


def test_a_second_start_keeps_it(farm: Farm, tmp_path: Path) -> None:
    text = ensure_admin_token(farm.context, tmp_path).read_text()
    assert ensure_admin_token(farm.context, tmp_path).read_text() == text


@pytest.mark.parametrize("lost", ["file", "database", "content"])
async def test_what_was_lost_is_made_anew(farm: Farm, tmp_path: Path, lost: str) -> None:
    path = ensure_admin_token(farm.context, tmp_path)
    old = path.read_text()
    if lost == "file":
        path.unlink()
    elif lost == "content":
        path.write_text("")
    else:
        with farm.context.unit_of_work() as work:
            work.session.execute(delete(TokenRow))
    text = ensure_admin_token(farm.context, tmp_path).read_text()
    assert text != old
    assert await _status(farm, old.strip()) == 401
    assert await _status(farm, text.strip()) == 201
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_the_machine_s_agent_enrols_with_a_token_of_its_own(farm: Farm) -> None:
    async with farm.client(enrolment_token(farm.context)) as client:
        assert (await client.post("/device-agent/enroll", json={"agent_name": "here"})).status_code == 200


def test_the_command_writes_the_token_for_its_owner_and_prints_none_of_it(
    tmp_path: Path,
) -> None:
    for command in ("migrate", "admin-token"):
        done = controller(command, DYNOFARM_HOME=str(tmp_path / "home"))
        assert done.returncode == 0, done.stderr
    path = tmp_path / "home" / "admin-token"
    assert path.stat().st_mode & 0o777 == 0o600
    assert str(path) in done.stderr
    assert path.read_text().strip() not in done.stdout + done.stderr


def test_a_database_that_cannot_be_used_is_named_without_its_password(tmp_path: Path) -> None:
    url = "postgresql+psycopg://dyno:secret-word@127.0.0.1:1/farm"
    for command in ("migrate", "admin-token"):
        done = controller(command, DYNOFARM_HOME=str(tmp_path), DYNOFARM_DATABASE_URL=url)
        assert done.returncode == 2
        assert "the database cannot be reached" in done.stderr
        assert "dyno:***@127.0.0.1:1/farm" in done.stderr
        assert "DYNOFARM_DATABASE_URL" in done.stderr
        assert "secret-word" not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
