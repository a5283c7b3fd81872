"""Every command: JSON that parses and validates, its exit code, and what bad input is told."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from client.errors import ErrorReport
from contract.rest import Comparison, DeviceView, GateView, RunReport, RunView, WorkloadView
from contract.states import DeviceState, JobOutcome
from contract.workload import CompiledWorkload
from tests.client.conftest import AddRun, Cli, Outcome
from tests.fakes.rest_controller import MODEL, TOKEN, RestController
from tests.fakes.scripted_run import DEVICE_ID

SUBMIT = ("submit", "shared-prefix", "--model", MODEL, "-p", "agents=2", "--pairs", "6")
UNKNOWN_RUN = "run_" + "9" * 26
OWN_WORKLOAD = """\
workload: mine
version: 1
title: Mine
description: One agent, one call.
texts:
  question: {text: "What is a dyno?"}
agents:
  - name: agent
    calls:
      - input: {text: question}
        output_tokens: 4
"""


def _one_object(outcome: Outcome) -> Any:
    """Standard output is one line of JSON and nothing else."""
    assert outcome.stdout.count("\n") == 1, outcome.stdout
    return json.loads(outcome.stdout)


def test_submit_answers_with_the_run_and_says_how_to_follow_it(cli: Cli, controller: RestController) -> None:
    outcome = cli(*SUBMIT, "--json")
    assert outcome.exit_code == 0
    run = RunView.model_validate(_one_object(outcome))
    assert controller.runs[run.run_id].request.repetitions == 6
    assert f"dynofarm watch {run.run_id}" not in outcome.stdout
    assert "dynofarm watch run_" in cli(*SUBMIT).stdout


def test_too_few_pairs_for_any_verdict_are_said_before_they_are_measured(cli: Cli) -> None:
    few = cli("submit", "shared-prefix", "--model", MODEL, "--pairs", "2")
    assert few.exit_code == 0
    assert "2 pairs cannot reach level 0.05, their smallest p is 0.25" in few.stderr
    assert "--pairs 5" in few.stderr
    assert cli("submit", "shared-prefix", "--model", MODEL, "--pairs", "5").stderr == ""


def test_a_workload_of_ones_own_is_submitted_from_its_file(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(OWN_WORKLOAD)
    outcome = cli("submit", "--workload-file", str(tmp_path / "mine.yaml"), "--model", MODEL, "--json")
    assert outcome.exit_code == 0, outcome.stderr


def test_a_run_is_submitted_again_as_it_was(cli: Cli, controller: RestController) -> None:
    first = RunView.model_validate(_one_object(cli(*SUBMIT, "--label", "pr=7", "--json")))
    again = RunView.model_validate(_one_object(cli("submit", "--again", first.run_id, "--json")))
    assert again.run_id != first.run_id
    assert controller.runs[again.run_id].request == controller.runs[first.run_id].request
    changed = cli("submit", "--again", first.run_id, "--pairs", "9")
    assert changed.exit_code == 2
    assert "pairs" in changed.stderr


def test_submit_and_watch_ends_with_the_report(cli: Cli) -> None:
    outcome = cli(*SUBMIT, "--watch", "--json")
    assert outcome.exit_code == 0
    assert RunReport.model_validate(_one_object(outcome)).gate.verdict == "pass"
    assert "trial 1: serial, warm-up" in outcome.stderr
    assert "run passed" in outcome.stderr


@pytest.mark.parametrize(
    ("script", "exit_code"),
    [
        ({}, 0),
        ({"wall_ms": {"serial": 400.0, "paged": 1000.0}}, 1),
        ({"wall_ms": {"serial": 1000.0, "paged": 1000.0}, "unrest": 0.2}, 3),
        ({"outcome": JobOutcome.FAILED}, 4),
        ({"outcome": JobOutcome.INFRA_FAILED}, 4),
        ({"outcome": JobOutcome.CANCELLED}, 5),
        ({"outcome": JobOutcome.EXPIRED}, 6),
    ],
)
def test_watch_and_gate_exit_with_the_verdict(
    cli: Cli, add_run: AddRun, script: dict[str, Any], exit_code: int
) -> None:
    run_id = add_run(**script).run_id
    watched = cli("watch", run_id, "--json")
    assert (watched.exit_code, _one_object(watched)["gate"]["exit_code"]) == (exit_code, exit_code)
    gated = cli("gate", run_id, "--json")
    assert (gated.exit_code, GateView.model_validate(_one_object(gated)).exit_code) == (exit_code, exit_code)


def test_a_gate_that_does_not_wait_is_inconclusive_until_the_end(cli: Cli, add_run: AddRun) -> None:
    run = add_run(polls=9)
    early = cli("gate", run.run_id, "--no-wait", "--json")
    assert early.exit_code == 3
    assert ErrorReport.model_validate(_one_object(early)).error == "result-not-ready"


def test_watching_gives_up_at_its_deadline_and_the_run_goes_on(cli: Cli, add_run: AddRun) -> None:
    run = add_run(polls=10_000)
    outcome = cli("watch", run.run_id, "--timeout-s", "0.2")
    assert outcome.exit_code == 4
    assert "goes on" in outcome.stderr
    assert not run.cancelled


def test_watching_survives_a_controller_that_is_away_for_a_while(
    cli: Cli, add_run: AddRun, controller: RestController
) -> None:
    run_id = add_run().run_id
    controller.refusals = [503, 502, 504]
    assert cli("watch", run_id).exit_code == 0


def test_a_report_is_shown_as_tables_and_as_json(cli: Cli, add_run: AddRun) -> None:
    run_id = add_run(polls=0).run_id
    cli("watch", run_id)
    shown = cli("report", run_id)
    assert shown.exit_code == 0
    for piece in (
        "Wall time",
        "60.0 % less",
        "2.50 times as fast",
        "agent-1",
        "weights",
        "pass, exit code 0",
    ):
        assert piece in shown.stdout
    assert RunReport.model_validate(_one_object(cli("report", run_id, "--json"))).run_id == run_id


def test_two_runs_are_compared(cli: Cli, add_run: AddRun) -> None:
    one, other = add_run(polls=0), add_run(polls=0, wall_ms={"serial": 1000.0, "paged": 500.0})
    one.look(), other.look()
    outcome = cli("compare", one.run_id, other.run_id, "--json")
    assert outcome.exit_code == 0
    comparison = Comparison.model_validate(_one_object(outcome))
    assert (comparison.baseline_run_id, comparison.run_id) == (one.run_id, other.run_id)
    assert "+25.0 %" in cli("compare", one.run_id, other.run_id).stdout


def test_runs_that_measured_different_things_compare_only_by_force(cli: Cli, add_run: AddRun) -> None:
    one, other = add_run(polls=0), add_run("another", polls=0)
    one.look(), other.look()
    refused = cli("compare", one.run_id, other.run_id)
    assert refused.exit_code == 2
    assert "--force" in refused.stderr
    assert cli("compare", one.run_id, other.run_id, "--force").exit_code == 0


def test_runs_are_listed_newest_first_over_pages(cli: Cli, add_run: AddRun) -> None:
    ids = [add_run().run_id for _ in range(3)]
    outcome = cli("runs", "--json", "-n", "2")
    runs = TypeAdapter(list[RunView]).validate_python(_one_object(outcome))
    assert [run.run_id for run in runs] == [ids[2], ids[1]]
    assert ids[0] in cli("runs").stdout


def test_an_empty_farm_says_what_to_do(cli: Cli, controller: RestController) -> None:
    controller.devices.clear()
    assert "dynofarm submit" in cli("runs").stdout
    assert "dynofarm agent" in cli("devices", "list").stdout
    assert _one_object(cli("devices", "list", "--json")) == []


def test_a_run_is_cancelled_by_name(cli: Cli, add_run: AddRun) -> None:
    run = add_run(polls=9)
    outcome = cli("cancel", run.run_id, "--json")
    assert outcome.exit_code == 0
    assert RunView.model_validate(_one_object(outcome)).outcome == "cancelled"


@pytest.mark.parametrize(
    ("action", "state"),
    [
        ("quarantine", DeviceState.QUARANTINED),
        ("maintain", DeviceState.MAINTENANCE),
        ("release", DeviceState.CHECKING),
    ],
)
def test_a_person_decides_about_a_device_and_says_why(cli: Cli, action: str, state: DeviceState) -> None:
    assert cli("devices", action, DEVICE_ID).exit_code == 2
    outcome = cli("devices", action, DEVICE_ID, "--reason", "odd heat", "--json")
    device = DeviceView.model_validate(_one_object(outcome))
    assert (outcome.exit_code, device.state, device.reasons) == (0, state, ["odd heat"])
    assert "odd heat" in cli("devices", "list").stdout


def test_devices_are_listed_and_shown(cli: Cli) -> None:
    listed = TypeAdapter(list[DeviceView]).validate_python(_one_object(cli("devices", "list", "--json")))
    shown = DeviceView.model_validate(_one_object(cli("devices", "show", DEVICE_ID, "--json")))
    assert listed == [shown]
    assert MODEL in cli("devices", "show", DEVICE_ID).stdout


def test_the_word_workloads_alone_lists_them_and_is_no_wrong_usage(cli: Cli) -> None:
    alone = cli("workloads")
    assert alone.exit_code == 0
    assert "shared-prefix" in alone.stdout


def test_workloads_are_listed_and_shown(cli: Cli) -> None:
    for arguments in (("workloads", "list"), ("workloads",)):
        views = TypeAdapter(list[WorkloadView]).validate_python(_one_object(cli(*arguments, "--json")))
        assert "shared-prefix" in [view.name for view in views]
    shown = cli("workloads", "show", "shared-prefix")
    assert "prefix_tokens" in shown.stdout
    unknown = cli("workloads", "show", "shared")
    assert unknown.exit_code == 2
    assert "shared-prefix" in unknown.stderr


def test_a_workload_file_is_checked_without_any_server(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(OWN_WORKLOAD)
    nowhere = {"DYNOFARM_CONTROLLER": "http://127.0.0.1:1", "DYNOFARM_TOKEN": ""}
    outcome = cli("workloads", "--check", str(file), "--json", **nowhere)
    graphs = TypeAdapter(list[CompiledWorkload]).validate_python(_one_object(outcome))
    assert [graph.name for graph in graphs] == ["mine"]
    assert "agent/0" in cli("workloads", "--check", str(file), **nowhere).stdout


def test_a_wrong_workload_file_is_told_with_file_and_line(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(OWN_WORKLOAD.replace("output_tokens", "output_token"))
    outcome = cli("workloads", "--check", str(file), "--json")
    assert outcome.exit_code == 2
    assert "mine.yaml:11" in outcome.stderr
    assert "output_token" in outcome.stderr
    assert ErrorReport.model_validate(_one_object(outcome)).error == "bad-workload"


def test_a_checked_file_is_summed_up_in_whole_lines(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(OWN_WORKLOAD)
    lines = cli("workloads", "--check", str(tmp_path / "mine.yaml")).stdout.splitlines()
    assert lines[1].startswith("1 agent, 1 call, longest sequence at least ")
    assert lines[1].rstrip().endswith(" tokens")
    assert lines[2].startswith("sha256:")


def test_an_unreachable_controller_is_infrastructure(cli: Cli) -> None:
    outcome = cli("runs", "--json", "--controller", "http://127.0.0.1:1")
    assert outcome.exit_code == 4
    assert "http://127.0.0.1:1" in outcome.stderr
    assert ErrorReport.model_validate(_one_object(outcome)).error == "controller-unreachable"


def test_a_farm_that_was_not_found_is_told_with_the_home_it_was_looked_for_in(
    cli: Cli, tmp_path: Path
) -> None:
    home = tmp_path / "elsewhere"
    home.mkdir()
    (home / "controller.json").write_text('{"url": "http://127.0.0.1:1", "pid": 1}')
    outcome = cli("runs", "--home", str(home), DYNOFARM_CONTROLLER="")
    assert outcome.exit_code == 4
    assert f"asked for the farm of the home {home}" in outcome.stderr
    assert f"dynofarm up --home {home}" in outcome.stderr
    assert "elsewhere" not in cli("runs", "--home", str(home), "--controller", "http://127.0.0.1:1").stderr


def test_a_wrong_token_is_usage_and_is_not_repeated(cli: Cli) -> None:
    outcome = cli("runs", DYNOFARM_TOKEN="dyn_wrong")
    assert outcome.exit_code == 2
    assert "DYNOFARM_TOKEN" in outcome.stderr
    assert "dyn_wrong" not in outcome.stderr + outcome.stdout


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (("submit", "nothing", "--model", MODEL), 2, "/workload"),
        (("submit", "shared-prefix", "--model", MODEL, "-p", "agnts=2"), 2, "agnts"),
        (("submit", "shared-prefix", "--model", MODEL, "--pairs", "0"), 2, "--pairs"),
        (("submit", "shared-prefix", "--model", MODEL, "--device", "gone"), 6, "/selectors/0"),
        (("submit", "shared-prefix", "--model", "Not A Name"), 2, "--model"),
        (("watch", "run_unknown"), 2, "dynofarm runs"),
        (("report", UNKNOWN_RUN), 2, UNKNOWN_RUN),
        (("gate", UNKNOWN_RUN), 2, UNKNOWN_RUN),
        (("cancel", UNKNOWN_RUN), 2, UNKNOWN_RUN),
        (("submit", "--again", UNKNOWN_RUN), 2, UNKNOWN_RUN),
        (("compare", UNKNOWN_RUN, "x"), 2, "'x' is not the id"),
        (("devices", "show", "gone"), 2, "dynofarm devices list"),
        (("runs", "--controller", "farm"), 2, "'farm'"),
        (("workloads", "--check", "/nowhere.yaml"), 2, "/nowhere.yaml"),
        (("workloads", "--controller", "http://127.0.0.1:1", "list"), 2, "after `list`"),
    ],
)
def test_bad_input_gets_one_clear_error(
    cli: Cli, controller: RestController, arguments: tuple[str, ...], exit_code: int, said: str
) -> None:
    outcome = cli(*arguments)
    assert outcome.exit_code == exit_code
    assert said in outcome.stderr
    assert outcome.stdout == ""
    assert not controller.runs


def test_a_wrong_environment_variable_is_named(cli: Cli) -> None:
    assert "DYNOFARM_POLL_S" in cli("runs", DYNOFARM_POLL_S="often").stderr


@pytest.mark.parametrize("arguments", [("fly",), ("runs", "--fast"), ("report",), ("devices", "sell", "x")])
def test_what_is_no_command_is_usage(cli: Cli, arguments: tuple[str, ...]) -> None:
    assert cli(*arguments).exit_code == 2


def test_the_token_is_never_an_option_nor_in_any_output(cli: Cli, add_run: AddRun) -> None:
    run_id = add_run(polls=0).run_id
    assert cli("runs", "--token", TOKEN).exit_code == 2
    for arguments in (
        ("runs",),
        ("watch", run_id),
        ("report", run_id),
        ("devices", "list"),
        ("gate", run_id),
    ):
        for json_option in ((), ("--json",)):
            outcome = cli(*arguments, *json_option)
            assert TOKEN not in outcome.stdout + outcome.stderr


def test_nothing_is_coloured_outside_of_a_terminal(cli: Cli, add_run: AddRun) -> None:
    run_id = add_run(polls=0).run_id
    tempted = {"GITHUB_ACTIONS": "true", "FORCE_COLOR": "1", "CLICOLOR_FORCE": "1", "TERM": "xterm-256color"}
    for arguments in (("watch", run_id), ("report", run_id), ("--help",), ("fly",), ("report", "run_x")):
        outcome = cli(*arguments, **tempted)
        assert "\x1b" not in outcome.stdout + outcome.stderr


def test_control_characters_of_a_model_do_not_reach_the_terminal(cli: Cli, add_run: AddRun) -> None:
    run_id = add_run(polls=0, text="\x1b[31mred\x07 [bold]plain[/bold]").run_id
    shown = cli("watch", run_id).stdout
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "[bold]plain[/bold]" in shown


def test_help_and_version_are_there(cli: Cli) -> None:
    assert cli("--version").stdout.startswith("dynofarm ")
    for command in ("up", "agent", "submit", "watch", "report", "compare", "gate", "devices", "workloads"):
        assert command in cli("--help").stdout
        assert cli(command, "--help").exit_code == 0


def test_the_home_of_a_running_farm_gives_address_and_token(
    cli: Cli, controller: RestController, tmp_path: Path
) -> None:
    home = tmp_path / "farm"
    home.mkdir()
    (home / "controller.json").write_text(json.dumps({"url": controller.url, "pid": 1}))
    (home / "admin-token").write_text(TOKEN + "\n")
    nothing = {"DYNOFARM_CONTROLLER": "", "DYNOFARM_TOKEN": ""}
    assert cli("runs", "--home", str(home), **nothing).exit_code == 0
    assert cli("runs", DYNOFARM_HOME=str(home), DYNOFARM_CONTROLLER="", DYNOFARM_TOKEN="").exit_code == 0


def test_the_id_of_an_attempt_is_in_what_the_lists_show_and_the_report_ends_with_how_to_trace(
    cli: Cli, add_run: AddRun
) -> None:
    run = add_run(polls=0)
    run.look()
    assert run.attempt_id in cli("cancel", run.run_id).stdout
    assert cli("report", run.run_id).stdout.rstrip().endswith(f"trace: dynofarm trace {run.run_id}")
