"""The transaction: all or nothing, one writer at a time, and readers that never wait."""

import sqlite3
import threading
from pathlib import Path

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import IntegrityError

from controller.db import session as session_module
from controller.db.models import AuditRow, LeaseRow
from controller.db.session import Sessions, open_sessions, read_only, unit_of_work
from controller.errors import StoreBusyError
from tests.controller.farm import START, make_tables


@pytest.fixture
def sessions(tmp_path: Path) -> Sessions:
    sessions = open_sessions(f"sqlite:///{tmp_path / 'farm.sqlite'}")
    make_tables(sessions)
    return sessions


def note(action: str) -> AuditRow:
    return AuditRow(principal="p", action=action, subject="s", detail="", created_at=START)


def actions(sessions: Sessions) -> list[str]:
    with read_only(sessions) as session:
        return list(session.scalars(select(AuditRow.action).order_by(AuditRow.audit_id)))


def test_a_unit_of_work_is_kept_whole(sessions: Sessions) -> None:
    with unit_of_work(sessions) as session:
        session.add_all([note("one"), note("two")])
    assert actions(sessions) == ["one", "two"]


def test_an_error_takes_everything_back(sessions: Sessions) -> None:
    def fail() -> None:
        with unit_of_work(sessions) as session:
            session.add(note("one"))
            session.flush()
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError):
        fail()
    assert actions(sessions) == []


def test_what_a_reader_adds_is_thrown_away(sessions: Sessions) -> None:
    with read_only(sessions) as session:
        session.add(note("one"))
        session.flush()
    assert actions(sessions) == []


def test_rows_stay_readable_after_the_block(sessions: Sessions) -> None:
    with unit_of_work(sessions) as session:
        session.add(note("one"))
    with read_only(sessions) as session:
        row = session.scalars(select(AuditRow)).one()
    assert row.created_at == START


def test_a_second_writer_waits_for_the_first_before_it_reads(sessions: Sessions) -> None:
    seen: list[list[str]] = []
    started = threading.Event()

    def second() -> None:
        started.set()
        with unit_of_work(sessions) as session:
            seen.append(list(session.scalars(select(AuditRow.action))))

    with unit_of_work(sessions) as session:
        session.add(note("first"))
        thread = threading.Thread(target=second)
        thread.start()
        started.wait(5)
        thread.join(0.3)
        assert seen == []
    thread.join(10)
    assert seen == [["first"]]


def test_a_reader_does_not_wait_for_a_writer_and_sees_the_past(sessions: Sessions) -> None:
    with unit_of_work(sessions) as session:
        session.add(note("one"))
        session.flush()
        assert actions(sessions) == []


def test_a_writer_that_waits_too_long_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "BUSY_TIMEOUT_S", 0.05)
    path = tmp_path / "farm.sqlite"
    sessions = open_sessions(f"sqlite:///{path}")
    make_tables(sessions)
    blocker = sqlite3.connect(path, isolation_level=None)
    try:
        blocker.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusyError), unit_of_work(sessions):
            pass
    finally:
        blocker.close()
    with unit_of_work(sessions) as session:
        session.add(note("later"))
    assert actions(sessions) == ["later"]


def test_sqlite_is_set_up_as_measured(sessions: Sessions) -> None:
    with read_only(sessions) as session:
        pragmas = {
            name: session.execute(text(f"PRAGMA {name}")).scalar()
            for name in ("journal_mode", "foreign_keys", "busy_timeout")
        }
    assert pragmas == {"journal_mode": "wal", "foreign_keys": 1, "busy_timeout": 10_000}


def test_foreign_keys_are_enforced(sessions: Sessions) -> None:
    lease = LeaseRow(
        lease_id="l", attempt_id="nowhere", device_id="d", device_agent_id="a", fence=1,
        granted_at=START, renewed_at=START, expires_at=START,
    )  # fmt: skip
    with pytest.raises(IntegrityError), unit_of_work(sessions) as session:
        session.add(lease)
