"""The Markdown comment: what a reviewer reads, and that nothing in it can be more than text."""

from typing import Any

import pytest

from client.pull_request_comment import comment
from contract.rest import RunReport
from contract.states import JobOutcome
from tests.client.conftest import AddRun

COMMAND = "dynofarm report run_1"


def _report(add_run: AddRun, **script: Any) -> RunReport:
    run = add_run(polls=0, **script)
    run.look()
    return run.report()


def test_effect_interval_pairs_and_what_is_detectable_stand_in_one_row(add_run: AddRun) -> None:
    text = comment(_report(add_run), COMMAND)
    (row,) = [line for line in text.splitlines() if line.startswith("| Wall time")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1] == "improved"
    assert cells[2].startswith("-60")
    assert "to" in cells[3]
    assert cells[5] == "6"
    assert cells[6].endswith("%")
    assert "60.0 % less wall time, 2.50 times as fast" in text
    assert COMMAND in text


@pytest.mark.parametrize(
    ("script", "heading"),
    [
        ({}, "no regression"),
        ({"wall_ms": {"serial": 400.0, "paged": 1000.0}}, "regression"),
        ({"outcome": JobOutcome.FAILED}, "not measured"),
        ({"outcome": JobOutcome.EXPIRED}, "no device took it"),
        ({"outcome": JobOutcome.CANCELLED}, "cancelled"),
    ],
)
def test_the_heading_says_the_verdict(add_run: AddRun, script: dict[str, Any], heading: str) -> None:
    assert heading in comment(_report(add_run, **script), COMMAND).splitlines()[0]


def test_every_row_has_as_many_cells_as_its_head(add_run: AddRun) -> None:
    table = [line for line in comment(_report(add_run), COMMAND).splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1


def test_names_and_failures_are_text_and_no_markup(add_run: AddRun) -> None:
    report = _report(add_run)
    evil = "<img src=x> | [click](http://evil) @everyone `rm`\n# head"
    device = report.devices[0].model_copy(update={"device_model": evil, "failures": [evil]})
    report = report.model_copy(update={"devices": [device]})
    text = comment(report, COMMAND)
    assert "<img" not in text
    assert "[click](" not in text
    assert "\n# head" not in text
    assert " @everyone" not in text


def test_an_emulated_device_is_called_one(add_run: AddRun) -> None:
    report = _report(add_run)
    device = report.devices[0].model_copy(update={"virtual": True})
    report = report.model_copy(update={"devices": [device]})
    assert "nothing here was measured on a phone" in comment(report, COMMAND)


@pytest.mark.parametrize("count", [1, 8, 64, 300])
def test_a_comment_fits_what_github_takes_however_many_devices_there_are(add_run: AddRun, count: int) -> None:
    report = _report(add_run)
    one = report.devices[0].model_copy(update={"failures": ["battery_low: charge the device | " * 400]})
    devices = [one.model_copy(update={"device_id": f"device-{number}"}) for number in range(count)]
    reason = "; ".join(f"{device.device_id}: wall_s inconclusive" * 9 for device in devices)
    gate = report.gate.model_copy(update={"reason": reason})
    text = comment(report.model_copy(update={"devices": devices, "gate": gate}), COMMAND)
    assert len(text) <= 65_536
    assert COMMAND in text
    assert "device-0" in text
    assert ("more of the devices" in text) == (count > 30)


def test_devices_that_explain_the_verdict_come_first(add_run: AddRun) -> None:
    report = _report(add_run)
    good = report.devices[0]
    verdict = good.verdicts[0].model_copy(update={"verdict": "regressed"})
    bad = good.model_copy(update={"device_id": "slow-one", "verdicts": [verdict]})
    text = comment(report.model_copy(update={"devices": [good, bad]}), COMMAND)
    assert text.index("**slow-one") < text.index(f"**{good.device_id}")
