"""Times and sentences as text."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from dashboard import wording


def test_a_time_is_shown_in_utc_whatever_its_zone() -> None:
    moment = datetime(2026, 1, 2, 1, 30, tzinfo=timezone(timedelta(hours=2)))
    assert wording.timestamp(moment) == "2026-01-01 23:30 UTC"
    assert wording.timestamp(None) == "–"
    assert wording.timestamp(datetime(2026, 1, 1, tzinfo=UTC)).endswith("UTC")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("it broke", "It broke."),
        ("wall_s rose", "wall_s rose."),
        ("host-1 is away", "host-1 is away."),
        ("Why?", "Why?"),
        ("", ""),
        (" done. ", "Done."),
    ],
)
def test_a_sentence_begins_and_ends_as_one(text: str, told: str) -> None:
    assert wording.sentence(text) == told
