"""Raw lines: what was measured stays, a session is taken up again only when it is of the same things."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from benchmarks.results import RESUME_WITHIN, last_session, new_session, open_session, read_lines

ABOUT = {"cpu": "a processor", "commit": "abc"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results" / "shape.jsonl"


def test_a_recent_session_of_the_same_things_goes_on(path: Path) -> None:
    first = new_session(path, ABOUT)
    first.add({"kind": "run", "config": "a/b"})
    again = open_session(path, ABOUT, datetime.now(UTC))
    assert again.session == first.session
    assert [line["config"] for line in again.runs] == ["a/b"]
    again.add({"kind": "run", "config": "c/d"})
    assert len(read_lines(path)) == 3


@pytest.mark.parametrize(
    ("about", "later"), [({**ABOUT, "commit": "other"}, timedelta(0)), (ABOUT, RESUME_WITHIN * 2)]
)
def test_another_build_or_another_day_is_another_session(
    path: Path, about: dict[str, str], later: timedelta
) -> None:
    first = new_session(path, ABOUT)
    again = open_session(path, about, datetime.now(UTC) + later)
    assert again.session != first.session
    assert again.runs == []
    assert len(read_lines(path)) == 2


def test_a_line_that_was_cut_by_a_crash_is_left_out(path: Path) -> None:
    new_session(path, ABOUT).add({"kind": "run", "config": "a/b"})
    with path.open("a") as file:
        file.write('{"session": "half of a li')
    assert len(read_lines(path)) == 2


def test_the_last_session_is_what_a_document_is_made_of(path: Path) -> None:
    assert last_session(path) is None
    new_session(path, ABOUT).add({"kind": "own", "report": {}})
    second = new_session(path, ABOUT)
    second.add({"kind": "not_installed", "peer": "x"})
    found = last_session(path)
    assert found is not None
    assert (found.session, found.about) == (second.session, ABOUT)
    assert found.latest("own") is None
    assert found.latest("not_installed") is not None


def test_a_line_names_no_folder_of_this_machine(path: Path) -> None:
    session = new_session(path, ABOUT)
    error = 'exit code 1: File "/somewhere/of/mine/run.py", line 3: vllm_cpu/conc at 3 GB/s'
    session.add({"kind": "run", "config": "vllm_cpu/conc", "error": error})
    kept = 'exit code 1: File "…/run.py", line 3: vllm_cpu/conc at 3 GB/s'
    assert session.runs[0]["error"] == read_lines(path)[-1]["error"] == kept
    assert session.runs[0]["config"] == "vllm_cpu/conc"
