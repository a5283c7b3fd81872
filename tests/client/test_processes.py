"""Signals, children and pipes: `watch`, `up` and `agent` as real processes."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from client.commands.farm import FarmStarted
from client.errors import ErrorReport, InfrastructureError
from client.farm_home import FarmHome
from client.local_farm import FarmCommand, LocalFarm
from contract.rest import RunView
from contract.states import GateExit
from tests.client.conftest import AddRun
from tests.client.processes import CLI, FAKE_FARM, environment, finish, is_alive, start, wait_for
from tests.fakes.rest_controller import ENROLLMENT_TOKEN, TOKEN, RestController

AGENT_THAT_TELLS = """
import json, os, sys
print(json.dumps({"arguments": sys.argv[1:], "token": os.environ.get("DYNOFARM_ENROLLMENT_TOKEN"),
                  "own": os.environ.get("DYNOFARM_TOKEN")}))
sys.exit(7)
"""


def test_ctrl_c_ends_the_watching_and_not_the_run(
    controller: RestController, add_run: AddRun, tmp_path: Path
) -> None:
    run = add_run(polls=1_000_000)
    env = environment(tmp_path, DYNOFARM_TOKEN=TOKEN)
    process = start(["watch", run.run_id, "--controller", controller.url], env)
    wait_for(lambda: run.looks > 3)
    process.send_signal(signal.SIGINT)
    code, stdout, stderr = finish(process)
    assert (code, stdout) == (130, "")
    assert f"dynofarm cancel {run.run_id} --controller {controller.url}" in stderr
    assert f"dynofarm watch {run.run_id}" in stderr
    assert "Traceback" not in stderr
    assert not run.cancelled


def test_a_reader_that_leaves_is_no_regression(controller: RestController, tmp_path: Path) -> None:
    env = environment(tmp_path, DYNOFARM_TOKEN=TOKEN, DYNOFARM_CONTROLLER=controller.url)
    process = start(["workloads", "list"], env)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    code, _, stderr = finish(process)
    assert code == 141
    assert stderr == ""


@pytest.mark.parametrize("arguments", [["workloads", "list"], ["workloads", "list", "--json"], ["--help"]])
def test_a_full_disk_under_the_result_is_infrastructure_and_no_regression(
    controller: RestController, tmp_path: Path, arguments: list[str]
) -> None:
    env = environment(tmp_path, DYNOFARM_TOKEN=TOKEN, DYNOFARM_CONTROLLER=controller.url)
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [sys.executable, "-c", CLI, *arguments], env=env, stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert ended.returncode == GateExit.INFRASTRUCTURE
    assert b"cannot write to standard output" in ended.stderr
    assert b"Traceback" not in ended.stderr


def test_a_closed_standard_output_changes_no_exit_code(controller: RestController, tmp_path: Path) -> None:
    env = environment(tmp_path, DYNOFARM_TOKEN=TOKEN, DYNOFARM_CONTROLLER=controller.url)
    command = shlex.join([sys.executable, "-c", CLI, "workloads", "list"])
    ended = subprocess.run(
        ["sh", "-c", f"{command} >&-"], env=env, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["report", "--json"], "Missing argument"),
        (["runs", "--json", "--limit", "0"], "greater than or equal to 1"),
        (["submit", "--bogus", "--json"], "--bogus"),
        (["bogus", "--json"], "bogus"),
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_with_json_is_one_json_object_too(
    tmp_path: Path, arguments: list[str], words: str
) -> None:
    code, stdout, stderr = finish(start(arguments, environment(tmp_path)))
    report = ErrorReport.model_validate_json(stdout)
    assert (code, report.exit_code, report.error) == (2, 2, "bad-option")
    assert words in report.detail
    assert report.next_step.startswith("`dynofarm")
    assert "--help` lists" in report.next_step
    assert "Usage: dynofarm" in stderr


def test_an_argument_that_is_not_utf8_is_refused_in_one_json_object(tmp_path: Path) -> None:
    name = os.fsdecode(b"/models/\xff")
    code, stdout, stderr = finish(
        start(["bench", "runtime", "--json", "--model", name], environment(tmp_path))
    )
    report = ErrorReport.model_validate_json(stdout)
    assert (code, report.exit_code, report.error) == (2, 2, "bad-option")
    assert "is not UTF-8" in report.detail
    assert "Traceback" not in stderr


def test_up_tells_where_the_farm_is_and_ctrl_c_stops_it(tmp_path: Path) -> None:
    home = tmp_path / "farm"
    process = start(["up", "--port", "0", "--no-agent", "--json"], environment(home))
    assert process.stdout is not None
    started = FarmStarted.model_validate_json(process.stdout.readline())
    pid = json.loads((home / "controller.json").read_text())["pid"]
    listed = finish(start(["runs", "--json"], environment(home)))
    process.send_signal(signal.SIGINT)
    code, rest, stderr = finish(process)
    assert (code, rest) == (0, "")
    assert (started.home, started.admin_token_file) == (str(home), str(home / "admin-token"))
    assert listed == (0, "[]\n", "")
    assert TOKEN not in stderr
    assert not is_alive(pid)


def test_up_that_cannot_start_is_infrastructure(tmp_path: Path) -> None:
    code, stdout, stderr = finish(start(["up", "--port", "0"], environment(tmp_path / "farm", {"exit": 2})))
    assert (code, stdout) == (4, "")
    assert "the port is taken" in stderr


def test_a_home_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    home = tmp_path / "file" / "farm"
    code, _, stderr = finish(start(["up", "--port", "0"], environment(home)))
    assert code == 2
    assert str(home) in stderr


def test_a_farm_that_ignores_the_request_to_end_is_ended(tmp_path: Path) -> None:
    command = FarmCommand(
        tuple(FAKE_FARM),
        FarmHome(tmp_path),
        environment=environment(tmp_path, {"deaf": True}),
        stop_timeout_s=0.2,
    )
    with LocalFarm(command) as farm:
        farm.wait_until_ready()
    assert farm.exit_code() == -signal.SIGKILL


def test_a_controller_file_of_an_earlier_farm_is_not_believed(tmp_path: Path) -> None:
    silent = (sys.executable, "-c", "import time; time.sleep(60)")
    (tmp_path / "controller.json").write_text(json.dumps({"url": "http://127.0.0.1:1", "pid": 1}))
    command = FarmCommand(silent, FarmHome(tmp_path), environment={})
    with LocalFarm(command) as farm, pytest.raises(InfrastructureError, match="not ready"):
        farm.wait_until_ready(timeout_s=0.3)


def test_a_second_farm_in_a_home_is_refused_with_the_reason_and_leaves_the_log_alone(tmp_path: Path) -> None:
    home = tmp_path / "farm"
    process = start(["up", "--port", "0", "--json"], environment(home))
    assert process.stdout is not None
    started = FarmStarted.model_validate_json(process.stdout.readline())
    before = (home / "farm.log").read_bytes()
    for second in (["demo", "--home", str(home), "--exit"], ["up", "--port", "0"]):
        code, _, stderr = finish(start(second, environment(home)))
        assert code == 2, stderr
        assert f"already runs with the home {home}: {started.url} (pid " in stderr
    assert (home / "farm.log").read_bytes() == before
    process.send_signal(signal.SIGINT)
    finish(process)


def test_a_start_appends_to_the_log_and_shows_only_what_it_said_itself(tmp_path: Path) -> None:
    home = tmp_path / "farm"
    home.mkdir()
    (home / "farm.log").write_text("why the farm before this one died\n")
    code, _, stderr = finish(start(["up", "--port", "0"], environment(home, {"exit": 2})))
    assert code == 4
    assert "the port is taken" in stderr
    assert "before this one" not in stderr
    assert (home / "farm.log").read_text().startswith("why the farm before this one died\n")


def test_up_keeps_the_terminal_for_the_address_and_says_where_the_log_is(tmp_path: Path) -> None:
    home = tmp_path / "farm"
    process = start(["up", "--port", "0"], environment(home))
    assert process.stdout is not None
    lines = [process.stdout.readline()]
    while "Ctrl-C" not in lines[-1]:
        lines.append(process.stdout.readline())
    process.send_signal(signal.SIGINT)
    _, _, stderr = finish(process)
    assert "farm ready at" in lines[0]
    assert str(home / "farm.log") in "".join(lines)
    assert "fake farm" not in stderr
    assert "fake farm" in (home / "farm.log").read_text()


def _agent_environment(controller: RestController, tmp_path: Path, **more: str) -> dict[str, str]:
    (tmp_path / "agent.py").write_text(AGENT_THAT_TELLS)
    agent = json.dumps([sys.executable, str(tmp_path / "agent.py")])
    return environment(
        tmp_path / "home",
        DYNOFARM_AGENT_COMMAND=agent,
        DYNOFARM_CONTROLLER=controller.url,
        DYNOFARM_TOKEN=TOKEN,
        **more,
    )


def test_agent_enrols_with_a_token_that_it_asked_for(controller: RestController, tmp_path: Path) -> None:
    code, stdout, stderr = finish(start(["agent"], _agent_environment(controller, tmp_path)))
    told = json.loads(stdout)
    assert code == 7
    assert told["token"] == ENROLLMENT_TOKEN
    assert told["arguments"] == ["--home", str(tmp_path / "home"), "--controller", controller.url]
    assert told["own"] is None
    assert ENROLLMENT_TOKEN not in stderr


def test_a_given_enrolment_token_is_handed_on_and_none_is_asked_for(
    controller: RestController, tmp_path: Path
) -> None:
    env = _agent_environment(controller, tmp_path, DYNOFARM_ENROLLMENT_TOKEN="dyn_given")
    _, stdout, _ = finish(start(["agent"], env))
    assert json.loads(stdout)["token"] == "dyn_given"
    assert not controller.asked


def test_an_agent_without_any_token_is_started_and_told_what_it_may_lack(
    controller: RestController, tmp_path: Path
) -> None:
    env = _agent_environment(controller, tmp_path) | {"DYNOFARM_TOKEN": "dyn_wrong"}
    code, stdout, stderr = finish(start(["agent"], env))
    assert code == 7
    assert json.loads(stdout)["token"] is None
    assert "DYNOFARM_ENROLLMENT_TOKEN" in stderr


def test_results_are_utf8_wherever_they_go(controller: RestController, tmp_path: Path) -> None:
    env = environment(tmp_path, DYNOFARM_TOKEN=TOKEN, DYNOFARM_CONTROLLER=controller.url, LC_ALL="C")
    submit = ["submit", "shared-prefix", "--model", "m", "--label", "who=Zoë", "--json"]
    process = start(submit, env)
    code, stdout, stderr = finish(process)
    assert code == 0, stderr
    assert RunView.model_validate_json(stdout).labels == {"who": "Zoë"}


def test_the_installed_command_is_this_one() -> None:
    command = Path(sys.executable).with_name("dynofarm")
    if not command.exists():
        pytest.skip("the distribution is not installed here")
    done = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("dynofarm ")
