"""Migrations make the tables that the models declare, from nothing, and never go back."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect

from controller.db.migrate import require_ready, upgrade, upgrade_opened
from controller.db.models import Row
from controller.db.session import open_sessions, unit_of_work
from controller.errors import NotReadyError, SchemaNewerError
from tests.house.repository import ROOT


def url_in(folder: Path) -> str:
    return f"sqlite:///{folder / 'farm.sqlite'}"


def test_an_empty_database_gets_every_table_and_nothing_differs_from_the_models(tmp_path: Path) -> None:
    upgrade(url_in(tmp_path))
    sessions = open_sessions(url_in(tmp_path))
    with sessions.engine.connect() as connection:
        assert set(inspect(connection).get_table_names()) == {*Row.metadata.tables, "alembic_version"}
        assert compare_metadata(MigrationContext.configure(connection), Row.metadata) == []
    sessions.close()


def test_the_partial_index_that_forbids_two_live_leases_is_there(tmp_path: Path) -> None:
    upgrade(url_in(tmp_path))
    sessions = open_sessions(url_in(tmp_path))
    indexes = {index["name"]: index for index in inspect(sessions.engine).get_indexes("leases")}
    assert indexes["uq_leases_live_device"]["unique"]
    assert str(indexes["uq_leases_live_device"]["dialect_options"]["sqlite_where"]) == "released_at IS NULL"
    sessions.close()


def test_upgrading_again_changes_nothing(tmp_path: Path) -> None:
    sessions = open_sessions(url_in(tmp_path))
    with pytest.raises(NotReadyError, match="migrate"):
        require_ready(sessions)
    for _ in range(2):
        upgrade_opened(sessions)
        require_ready(sessions)
    sessions.close()


def test_a_database_of_a_newer_version_is_said_to_be_one_and_left_alone(tmp_path: Path) -> None:
    sessions = open_sessions(f"sqlite:///{tmp_path / 'controller.sqlite'}")
    upgrade_opened(sessions)
    with unit_of_work(sessions) as session:
        session.connection().exec_driver_sql("UPDATE alembic_version SET version_num = 'from-tomorrow'")
    for look in (upgrade_opened, require_ready):
        with pytest.raises(SchemaNewerError, match=r"from-tomorrow.*newer"):
            look(sessions)
    sessions.close()
    for words in (["controller", "migrate"], ["controller.embedded", "--port", "0", "--home", str(tmp_path)]):
        environment = {**os.environ, "DYNOFARM_HOME": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-m", *words], env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 2
        assert "newer than this dynofarm" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_database_in_memory_can_be_upgraded_too() -> None:
    sessions = open_sessions("sqlite://")
    upgrade_opened(sessions)
    require_ready(sessions)


def test_the_alembic_command_works_on_the_database_of_the_environment(tmp_path: Path) -> None:
    environment = {**os.environ, "DYNOFARM_DATABASE_URL": url_in(tmp_path)}
    for words in (["upgrade", "head"], ["check"]):
        done = subprocess.run(
            [sys.executable, "-m", "alembic", *words],
            cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    downgrade = subprocess.run(
        [sys.executable, "-m", "alembic", "downgrade", "base"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert downgrade.returncode != 0
    assert "go forward" in downgrade.stderr


def test_the_code_of_before_can_still_insert_devices_after_calibrations_came(tmp_path: Path) -> None:
    upgrade(url_in(tmp_path))
    sessions = open_sessions(url_in(tmp_path))
    # Never committed, so that its agent need not exist.
    with sessions.engine.connect() as connection:
        columns = [c for c in inspect(connection).get_columns("devices") if c["name"] != "calibrations"]
        required = {c["name"]: "0" for c in columns if not c["nullable"]}
        names, values = ", ".join(required), ", ".join(f"'{each}'" for each in required.values())
        connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
        connection.exec_driver_sql(f"INSERT INTO devices ({names}) VALUES ({values})")
        assert connection.exec_driver_sql("SELECT calibrations FROM devices").scalar_one() == "[]"
    sessions.close()


def test_there_is_one_line_of_migrations_each_named_by_date_and_sentence() -> None:
    config = Config()
    config.set_main_option("script_location", str(ROOT / "migrations"))
    scripts = list(ScriptDirectory.from_config(config).walk_revisions())
    assert len(ScriptDirectory.from_config(config).get_heads()) == 1
    for script in scripts:
        date, _, sentence = Path(script.path).stem.partition("_")
        assert len(date.split("-")) == 4
        assert sentence


@pytest.mark.parametrize("text", ["lock_timeout", "go forward"])
def test_a_new_migration_gets_a_lock_time_out_and_no_way_back(text: str) -> None:
    assert text in (ROOT / "migrations" / "script.py.mako").read_text()
