"""JUnit files: what is red, what is yellow, and that any reader can parse them."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from client.errors import UsageError
from client.junit import junit_of_error, junit_of_report
from contract.states import JobOutcome
from tests.client.conftest import AddRun, Cli
from tests.fakes.scripted_run import ScriptedRun


def _done(run: ScriptedRun) -> ScriptedRun:
    run.look()
    return run


def _suite(text: str) -> ElementTree.Element:
    suite = ElementTree.fromstring(text).find("testsuite")
    assert suite is not None
    return suite


@pytest.mark.parametrize(
    ("script", "failures", "errors"),
    [
        ({}, 0, 0),
        ({"wall_ms": {"serial": 400.0, "paged": 1000.0}}, 1, 0),
        ({"wall_ms": {"serial": 1000.0, "paged": 1000.0}, "unrest": 0.2}, 0, 1),
        ({"outcome": JobOutcome.FAILED}, 0, 1),
        ({"outcome": JobOutcome.EXPIRED}, 0, 1),
    ],
)
def test_a_regression_fails_and_what_kept_us_from_a_verdict_is_an_error(
    add_run: AddRun, script: dict[str, Any], failures: int, errors: int
) -> None:
    suite = _suite(junit_of_report(_done(add_run(polls=0, **script)).report()))
    assert (suite.get("failures"), suite.get("errors")) == (str(failures), str(errors))
    assert len(suite.findall("testcase/failure")) == failures
    assert len(suite.findall("testcase/error")) == errors


def test_an_inconclusive_verdict_that_may_pass_is_skipped(add_run: AddRun) -> None:
    run = _done(add_run(polls=0, wall_ms={"serial": 1000.0, "paged": 1000.0}, unrest=0.2))
    gate = run.request.gate.model_copy(update={"inconclusive": "pass"})
    run.request = run.request.model_copy(update={"gate": gate})
    suite = _suite(junit_of_report(run.report()))
    assert (suite.get("skipped"), suite.get("errors"), suite.get("failures")) == ("1", "0", "0")


def test_the_numbers_are_properties(add_run: AddRun) -> None:
    run = _done(add_run(polls=0))
    suite = _suite(junit_of_report(run.report()))
    of_run = {each.get("name"): each.get("value") for each in suite.findall("properties/property")}
    of_case = {each.get("name"): each.get("value") for each in suite.findall("testcase/properties/property")}
    assert (of_run["run_id"], of_run["exit_code"]) == (run.run_id, "0")
    assert of_case["pairs"] == "6"
    assert of_case["change"].startswith("-60")
    assert set(of_case) >= {"verdict", "interval", "p_value", "mde_percent", "device_model"}


def test_characters_that_xml_cannot_have_are_replaced() -> None:
    suite = _suite(junit_of_error("run_1", UsageError("bad", "a \x00 \x1b <&> \ud800 b")))
    error = suite.find("testcase/error")
    assert error is not None
    assert "<&>" in (error.get("message") or "")


def test_the_gate_writes_its_files(cli: Cli, add_run: AddRun, tmp_path: Path) -> None:
    run = add_run(wall_ms={"serial": 400.0, "paged": 1000.0})
    junit, markdown = tmp_path / "gate.xml", tmp_path / "gate.md"
    outcome = cli("gate", run.run_id, "--junit", str(junit), "--markdown", str(markdown))
    assert outcome.exit_code == 1
    assert _suite(junit.read_text()).get("failures") == "1"
    assert "regression" in markdown.read_text()


def test_a_gate_that_cannot_be_asked_still_leaves_a_red_file(cli: Cli, tmp_path: Path) -> None:
    junit = tmp_path / "gate.xml"
    outcome = cli("gate", "run_" + "9" * 26, "--junit", str(junit))
    assert outcome.exit_code == 2
    assert _suite(junit.read_text()).get("errors") == "1"


@pytest.mark.parametrize("option", ["--junit", "--markdown"])
def test_a_file_that_cannot_be_written_is_named_before_the_run_is_waited_for(
    cli: Cli, add_run: AddRun, tmp_path: Path, option: str
) -> None:
    run = add_run(polls=10_000)
    outcome = cli("gate", run.run_id, option, str(tmp_path / "no" / "gate.file"))
    assert outcome.exit_code == 2
    assert "gate.file" in outcome.stderr
    assert "mkdir -p" in outcome.stderr


def test_every_suite_and_case_has_a_time_and_they_add_up(add_run: AddRun) -> None:
    report = _done(add_run(polls=0)).report()
    suite = _suite(junit_of_report(report))
    measured_s = sum(sum(pair.wall_s.values()) for device in report.devices for pair in device.pairs)
    times_s = [float(case.attrib["time"]) for case in suite.iter("testcase")]
    assert sum(times_s) == pytest.approx(measured_s, abs=0.01)
    assert float(suite.attrib["time"]) == pytest.approx(sum(times_s))
    assert float(_suite(junit_of_error("run_1", UsageError("bad", "a"))).attrib["time"]) == 0


def test_a_problem_is_also_the_text_of_its_element(add_run: AddRun) -> None:
    run = _done(add_run(polls=0, wall_ms={"serial": 400.0, "paged": 1000.0}))
    failure = _suite(junit_of_report(run.report())).find("testcase/failure")
    assert failure is not None
    assert failure.text == failure.get("message")


def test_a_device_without_a_verdict_is_a_case_of_its_own(add_run: AddRun) -> None:
    report = _done(add_run(polls=0)).report()
    broken = report.devices[0].model_copy(
        update={"device_id": "broken", "verdicts": [], "pairs": [], "failures": ["jetsam: killed"]}
    )
    suite = _suite(junit_of_report(report.model_copy(update={"devices": [*report.devices, broken]})))
    (error,) = suite.findall("testcase/error")
    assert error.text == "jetsam: killed"
    assert suite.get("tests") == "2"
