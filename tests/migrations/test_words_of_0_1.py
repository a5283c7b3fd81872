"""A farm of 0.1 is brought up to date: what its device agents recorded is read as before."""

import sqlite3
from contextlib import closing
from pathlib import Path

import zstandard
from alembic import command
from alembic.config import Config

from contract.events import Stream
from contract.failures import FailureReason
from contract.version import CONTRACT_VERSION
from controller.db.events import EventRepository
from controller.db.migrate import upgrade_opened
from controller.db.models import AttemptRow
from controller.db.session import Sessions, open_sessions, read_only
from tests.controller.farm import fixed_id
from tests.house.repository import ROOT

LAST_OF_0_1 = "8d40c9b7e1a5"
ATTEMPT = fixed_id("att", 1)
LINES = [
    '{"seq":1,"t_mono_ns":1,"type":"stream_opened","stream":"agent","contract_version":"'
    + CONTRACT_VERSION
    + f'","attempt_id":"{ATTEMPT}","producer":{{"name":"dynofarm-agent","version":"0.1.0",'
    '"build":"unknown"},"t_wall":"2026-11-29T12:00:00Z"}',
    '{"seq":2,"t_mono_ns":2,"type":"agent_restarted","runtime_alive":false}',
    '{"seq":3,"t_mono_ns":3,"type":"transport_lost","detail":"said \\"stream\\":\\"agent\\""}',
]


def sessions_of_0_1(folder: Path) -> Sessions:
    sessions = open_sessions(f"sqlite:///{folder / 'farm.sqlite'}")
    config = Config()
    config.set_main_option("script_location", str(ROOT / "migrations"))
    with sessions.engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, LAST_OF_0_1)
    # Not by the engine, which would ask for the rows that an attempt refers to: they are of no interest here.
    with closing(sqlite3.connect(folder / "farm.sqlite")) as database, database:
        store_an_attempt(database)
    return sessions


def store_an_attempt(database: sqlite3.Connection) -> None:
    now = "2026-11-29 12:00:00.000000"
    attempt = {
        **{
            "attempt_id": ATTEMPT,
            "job_id": "j",
            "number": 1,
            "state": "errored",
            "detail": "",
            "limits": "{}",
        },
        **{"reason": "agent_restarted", "last_seq": '{"agent": 3, "control": 0}', "device_id": "d1"},
        **{"agent_id": "a", "fence": 1, "device_generation": 1, "trials_done": 0, "trials_total": 1},
        **{"salvaged": False, "state_since": now, "created_at": now, "ended_at": now},
    }
    stream = {"attempt_id": ATTEMPT, "stream": "agent", "next_seq": 4}
    lines = zstandard.compress("".join(f"{line}\n" for line in LINES).encode())
    batch = {
        **{"attempt_id": ATTEMPT, "stream": "agent", "first_seq": 1, "last_seq": 3},
        **{"lines_zstd": lines, "received_at": now, "sent_at": now},
    }
    for table, row in (("attempts", attempt), ("event_streams", stream), ("event_batches", batch)):
        names, values = ", ".join(row), ", ".join(f":{name}" for name in row)
        database.execute(f"INSERT INTO {table} ({names}) VALUES ({values})", row)


def test_the_events_of_a_device_agent_of_0_1_are_read_and_counted(tmp_path: Path) -> None:
    sessions = sessions_of_0_1(tmp_path)
    upgrade_opened(sessions)
    with read_only(sessions) as session:
        events = list(EventRepository(session).events(ATTEMPT, Stream.DEVICE_AGENT))
        next_seq = EventRepository(session).next_seq(ATTEMPT, Stream.DEVICE_AGENT)
        attempt = session.get_one(AttemptRow, ATTEMPT)
        reason, last_seq = attempt.reason, attempt.last_seq
    sessions.close()
    assert [event.type for event in events] == ["stream_opened", "device_agent_restarted", "transport_lost"]
    assert next_seq == 4
    assert reason is FailureReason.AGENT_RESTARTED
    assert last_seq == {"device_agent": 3, "control": 0}


def test_a_text_that_quotes_the_old_words_stays_as_it_was(tmp_path: Path) -> None:
    sessions = sessions_of_0_1(tmp_path)
    upgrade_opened(sessions)
    with read_only(sessions) as session:
        *_, (_, last) = EventRepository(session).lines(ATTEMPT, Stream.DEVICE_AGENT)
    sessions.close()
    assert last.decode() == LINES[-1]
