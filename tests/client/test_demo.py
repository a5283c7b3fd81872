"""The demo as a process, with a fake farm in the place of the real one: result, exit code, what it leaves."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from client.api import DynofarmClient
from client.cli import app
from client.commands.demo import cancel_leftovers, wait_for_devices
from client.demo_result import DemoResult
from client.demo_sizes import DemoSizes, demo_request
from client.demo_target import DemoDevices
from client.errors import ErrorReport, InfrastructureError
from client.output import Output
from contract.rest import RunRequest
from contract.states import DeviceState, TargetKind
from tests.client.conftest import AddRun, Outcome
from tests.client.processes import environment, finish, is_alive, start, wait_for
from tests.fakes.rest_controller import TOKEN, RestController, host_device


def _demo(home: Path, plan: dict[str, Any] | None = None, *more: str, **variables: str) -> Outcome:
    """The demo in this process; its farm is a child."""
    arguments = ["demo", "--home", str(home), "--exit", "--json", *more]
    result = CliRunner().invoke(app, arguments, env=environment(home, plan, **variables))
    assert not (home / "controller.json").exists()
    assert TOKEN not in result.stdout + result.stderr
    return Outcome(result.exit_code, result.stdout, result.stderr)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """A demo in which all goes well."""
    return _demo(tmp_path_factory.mktemp("good"))


def test_the_last_line_is_one_object_with_everything_that_was_promised(good: Outcome) -> None:
    assert good.exit_code == 0, good.stderr
    assert good.stdout.count("\n") == 1
    result = json.loads(good.stdout)
    assert DemoResult.model_validate(result)
    for arm in ("serial", "paged"):
        for metric in ("wall_s", "ttft_ms", "itl_ms", "output_tokens_per_s", "peak_footprint_mb"):
            assert set(result["arms"][arm][metric]) == {"median", "min", "max", "n"}
        assert result["arms"][arm]["kv_hit_rate_tokens"]["n"] == 5
        assert result["arms"][arm]["kv_hit_rate_requests"]["n"] == 5
    assert result["wall_reduction_percent"] == pytest.approx(60.0, abs=0.5)
    assert result["speedup"] == pytest.approx(2.5, abs=0.05)
    assert (result["events_lost"], result["events_duplicated"]) == (0, 0)
    assert (result["gate"]["verdict"], result["gate"]["exit_code"], result["gate"]["pairs"]) == ("pass", 0, 5)
    assert result["gate"]["p_value"] == pytest.approx(1 / 32)
    assert {row["arm"] for row in result["memory_budget"]} == {"serial", "paged"}
    assert "60" in result["reading"]
    assert "the agents wrote this" in result["sample_text"]
    assert result["run_id"] in result["report_url"]


def test_progress_and_tables_go_to_standard_error(good: Outcome) -> None:
    for piece in (
        "waiting for a device",
        "trial 2: paged, warm-up",
        "Wall time",
        "memory budget",
        "dashboard:",
    ):
        assert piece in good.stderr


def test_lost_and_doubled_events_fail_the_demo_and_are_counted(tmp_path: Path) -> None:
    outcome = _demo(tmp_path, {"lose": 2, "repeat": 3})
    assert outcome.exit_code == 4
    result = DemoResult.model_validate_json(outcome.stdout)
    assert (result.events_lost, result.events_duplicated) == (2, 3)


@pytest.mark.parametrize(("job_outcome", "exit_code"), [("failed", 4), ("expired", 6)])
def test_a_run_that_was_not_measured_fails_the_demo(tmp_path: Path, job_outcome: str, exit_code: int) -> None:
    outcome = _demo(tmp_path, {"outcome": job_outcome})
    assert outcome.exit_code == exit_code
    assert ErrorReport.model_validate_json(outcome.stdout).error == "run-not-measured"
    assert "farm.log" in outcome.stderr


def test_a_farm_that_does_not_start_is_told_with_its_own_words(tmp_path: Path) -> None:
    outcome = _demo(tmp_path, {"exit": 3})
    assert outcome.exit_code == 4
    assert "the port is taken" in outcome.stderr
    assert "farm.log" in outcome.stderr
    assert ErrorReport.model_validate_json(outcome.stdout).error == "farm-not-started"


def test_the_environment_says_the_sizes_and_names_no_other_farm(tmp_path: Path) -> None:
    foreign = {
        "DYNOFARM_CONTROLLER": "http://127.0.0.1:1",
        "DYNOFARM_TOKEN": "dyn_x",
        "DYNOFARM_PORT": "1",
        "DYNOFARM_DATABASE_URL": "postgresql://elsewhere",
    }
    sizes = {"DYNOFARM_DEMO_PAIRS": "6", "DYNOFARM_DEMO_AGENTS": "2"}
    outcome = _demo(tmp_path, None, "--agents", "3", **foreign, **sizes)
    assert DemoResult.model_validate_json(outcome.stdout).gate.pairs == 6, outcome.stderr
    inherited = json.loads((tmp_path / "environment.json").read_text())
    assert not {*foreign, "DYNOFARM_HOME"} & set(inherited)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle_takes_the_farm_down_as_well(tmp_path: Path, number: int) -> None:
    home = tmp_path / "farm"
    env = environment(home, {"polls": 1_000_000})
    process = start(["demo", "--home", str(home), "--exit"], env)
    pid = wait_for(lambda: _pid_of(home))
    assert process.stderr is not None
    while "submitted run_" not in process.stderr.readline():
        pass
    process.send_signal(number)
    code, _, stderr = finish(process)
    assert code == 128 + number
    assert "run run_00000000000000000000000001 cancelled; stopping the farm" in stderr
    assert not is_alive(pid)
    # The farm keeps its runs: one that goes on would have the device in the next demo.
    assert "POST /v1/runs/run_00000000000000000000000001:cancel" in (home / "asked.txt").read_text()


def test_without_exit_it_stays_up_until_ctrl_c_and_then_ends_well(tmp_path: Path) -> None:
    home = tmp_path / "farm"
    process = start(["demo", "--home", str(home), "--json"], environment(home))
    assert process.stdout is not None
    assert process.stderr is not None
    result = DemoResult.model_validate_json(process.stdout.readline())
    pid = wait_for(lambda: _pid_of(home))
    while "stays up until Ctrl-C" not in (line := process.stderr.readline()):
        pass
    assert str(home / "admin-token") in line
    assert process.poll() is None
    assert is_alive(pid)
    process.send_signal(signal.SIGINT)
    code, rest, stderr = finish(process)
    assert (code, rest) == (0, "")
    assert f"what it measured stays: dynofarm up --home {home}" in stderr
    assert result.events_lost == 0
    assert not is_alive(pid)


def test_runs_that_an_earlier_demo_left_are_cancelled_and_no_others(
    client: DynofarmClient, add_run: AddRun
) -> None:
    left, foreign, done = add_run(polls=9), add_run(polls=9), add_run(polls=0)
    for run in (left, done):
        run.request = demo_request(DemoSizes(), "host-1")
    cancel_leftovers(client, Output(as_json=False))
    assert (left.cancelled, foreign.cancelled, done.cancelled) == (True, False, False)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"state": DeviceState.COOLING, "reasons": ["too hot"]}, "cooling too hot"),
        ({"models": []}, "lacks the model"),
        ({"kind": TargetKind.IOS}, "there is none"),
    ],
)
def test_a_device_that_does_not_come_is_told_with_what_it_lacks(
    controller: RestController, client: DynofarmClient, changed: dict[str, Any], said: str
) -> None:
    controller.devices = {"host-1": host_device(**changed)}
    with pytest.raises(InfrastructureError, match=said):
        wait_for_devices(client, DemoDevices(TargetKind.HOST), Output(as_json=False), timeout_s=0.01)


def test_the_request_of_the_demo_is_five_agents_in_float32_on_one_device() -> None:
    request = demo_request(DemoSizes(), "host-1")
    assert request.workload.params["agents"] == 5
    assert request.engine.dtype == "float32"
    assert [arm.mode for arm in request.arms] == ["serial", "paged"]
    assert request.repetitions >= 5
    assert RunRequest.model_validate_json(request.model_dump_json()) == request


def test_a_result_refuses_fields_that_nobody_knows() -> None:
    with pytest.raises(ValidationError):
        DemoResult.model_validate({"run_id": "x", "surprise": 1})


def _pid_of(home: Path) -> int:
    try:
        return int(json.loads((home / "controller.json").read_text())["pid"])
    except (FileNotFoundError, ValueError):
        return 0
