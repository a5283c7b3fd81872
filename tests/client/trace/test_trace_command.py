"""`dynofarm trace` as a person and as a script call it."""

import json
from pathlib import Path

import pytest

from contract.states import GateExit
from tests.client.conftest import AddRun, Cli
from tests.client.trace.read_trace import read_trace


def test_a_trace_is_written_and_summed_up(cli: Cli, add_run: AddRun, tmp_path: Path) -> None:
    run = add_run(polls=0)
    file = tmp_path / "out.pftrace"
    outcome = cli("trace", run.attempt_id, "-o", str(file), "--json")
    assert outcome.exit_code == GateExit.PASS
    summary = json.loads(outcome.stdout)
    tracks = read_trace(file.read_bytes())
    assert summary["arms"] == {"serial": ["agent-1", "agent-2"], "paged": ["agent-1", "agent-2"]}
    trials = [track for path, track in tracks.items() if path[-1] in ("arm serial", "arm paged")]
    assert sum(len(track.slices) for track in trials) == summary["trials"] > 2
    assert summary["is_complete"] is True
    assert summary["size_bytes"] == file.stat().st_size


def test_without_a_file_it_is_named_after_the_attempt(
    cli: Cli, add_run: AddRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = add_run(polls=0)
    outcome = cli("trace", run.attempt_id)
    assert outcome.exit_code == GateExit.PASS
    assert f"{run.attempt_id}.pftrace: " in outcome.stdout
    assert (tmp_path / f"{run.attempt_id}.pftrace").stat().st_size > 1000


def test_an_attempt_that_goes_on_is_traced_so_far(cli: Cli, add_run: AddRun, tmp_path: Path) -> None:
    run = add_run(polls=2)
    run.look()
    outcome = cli("trace", run.attempt_id, "-o", str(tmp_path / "out"))
    assert outcome.exit_code == GateExit.PASS
    assert "the trace so far" in outcome.stderr
    read_trace((tmp_path / "out").read_bytes())


def test_a_run_stands_for_its_newest_ended_attempt(cli: Cli, add_run: AddRun, tmp_path: Path) -> None:
    run = add_run(polls=0)
    run.look()
    outcome = cli("trace", run.run_id, "-o", str(tmp_path / "out"), "--json")
    assert outcome.exit_code == GateExit.PASS, outcome.stderr
    assert json.loads(outcome.stdout)["attempt_id"] == run.attempt_id
    assert "https://ui.perfetto.dev" in cli("trace", run.run_id, "-o", str(tmp_path / "out")).stdout


def test_a_run_without_an_ended_attempt_lists_those_that_go_on(
    cli: Cli, add_run: AddRun, tmp_path: Path
) -> None:
    run = add_run(polls=1_000_000)
    run.look()
    outcome = cli("trace", run.run_id, "-o", str(tmp_path / "out"))
    assert outcome.exit_code == GateExit.INCONCLUSIVE
    assert f"{run.attempt_id} (host-1, running)" in outcome.stderr
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize(
    ("attempt_id", "said"),
    [
        ("job_00000000000000000000000001", "is not the id of a run or of an attempt"),
        ("att_" + "9" * 26, "no attempt is named"),
    ],
)
def test_what_is_no_attempt_is_usage(cli: Cli, tmp_path: Path, attempt_id: str, said: str) -> None:
    outcome = cli("trace", attempt_id, "-o", str(tmp_path / "out"))
    assert outcome.exit_code == GateExit.USAGE
    assert said in outcome.stderr
    assert not list(tmp_path.glob("out*"))
