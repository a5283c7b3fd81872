"""Columns that mean the same on every database: times, words, documents."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.exc import StatementError

from contract.states import RunState
from controller.db.models import AuditRow, CompressedJson, NaiveDatetimeError, RunRow, UtcDateTime, WordText
from tests.controller.farm import START, Farm

SQLITE = Farm().sessions.engine.dialect


def test_a_naive_time_is_refused() -> None:
    with pytest.raises(NaiveDatetimeError):
        UtcDateTime().process_bind_param(datetime(2026, 1, 1), SQLITE)  # noqa: DTZ001 - naive on purpose
    farm = Farm()
    with pytest.raises(StatementError, match="no time zone"), farm.unit_of_work() as work:
        work.session.add(
            AuditRow(principal="p", action="a", subject="s", detail="", created_at=START.replace(tzinfo=None))
        )


@given(
    st.datetimes(
        timezones=st.sampled_from([UTC, timezone(timedelta(hours=-7)), timezone(timedelta(hours=5.5))])
    )
)
def test_a_time_comes_back_as_the_same_moment_in_utc(moment: datetime) -> None:
    if not datetime.min.replace(tzinfo=UTC) + timedelta(days=2) < moment < datetime.max.replace(tzinfo=UTC):
        return
    kept = UtcDateTime().process_bind_param(moment, SQLITE)
    back = UtcDateTime().process_result_value(kept, SQLITE)
    assert back == moment
    assert back is not None
    assert back.utcoffset() == timedelta(0)


def test_words_are_kept_as_text_and_come_back_as_words() -> None:
    farm = Farm()
    run_id, _ = farm.add_run()
    with farm.unit_of_work() as work:
        assert work.session.execute(text("SELECT state FROM runs")).scalar() == "active"
    assert farm.run(run_id).state is RunState.ACTIVE


def test_an_unknown_word_is_an_error_both_ways() -> None:
    words = WordText(RunState)
    with pytest.raises(ValueError, match="nonsense"):
        words.process_bind_param("nonsense", SQLITE)
    with pytest.raises(ValueError, match="nonsense"):
        words.process_result_value("nonsense", SQLITE)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON)
def test_a_document_comes_back_as_it_was(document: Any) -> None:
    column = CompressedJson()
    assert column.process_result_value(column.process_bind_param(document, SQLITE), SQLITE) == document


def test_a_repetitive_document_is_small() -> None:
    kept = CompressedJson().process_bind_param(["the same words again and again"] * 10_000, SQLITE)
    assert kept is not None
    assert len(kept) < 2_000


def test_every_table_names_its_constraints_so_that_migrations_can_change_them() -> None:
    for table in RunRow.metadata.sorted_tables:
        for constraint in table.constraints:
            assert constraint.name, f"{table.name}: {constraint}"
