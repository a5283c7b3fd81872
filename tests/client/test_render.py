"""Reports as text: nothing is lost on a narrow terminal, and the figures read as they were meant."""

import io
from typing import Any

import pytest
from rich.console import Console, RenderableType

from client.render import HEADLINE_METRICS, report_view
from client.render_lists import device_view, graphs_view, reason_text, runs_table, workload_view
from contract.rest import RunReport, WorkloadRequest
from contract.states import JobOutcome
from tests.client.conftest import AddRun
from tests.fakes.rest_controller import host_device
from workloads import catalogue, compile_request


def _shown(view: RenderableType, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None, markup=False, emoji=False)
    console.print(view)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def _without_layout(text: str) -> str:
    return "".join(char for char in text if char.isalnum() or char in "%.-")


def _report(add_run: AddRun, **script: Any) -> RunReport:
    run = add_run(polls=0, **script)
    run.look()
    return run.report()


@pytest.mark.parametrize("width", [40, 60, 80, 120, 240])
def test_every_line_fits_and_the_figures_are_there(add_run: AddRun, width: int) -> None:
    shown = _shown(report_view(_report(add_run)), width)
    assert max(len(line) for line in shown.splitlines()) <= width
    packed = _without_layout(shown)
    for piece in ("60.0%less", "2.50timesasfast", "weights", "passexitcode0", "SchedulingWorks"):
        assert piece.lower() in packed.lower()


def test_the_demo_shows_the_headline_metrics_only(add_run: AddRun) -> None:
    report = _report(add_run)
    all_rows, headlines = (_shown(report_view(report, only), 160) for only in (None, HEADLINE_METRICS))
    assert "Time per output token" in all_rows
    assert "Time per output token" not in headlines
    assert "KV hit rate by token" in headlines


def test_a_run_without_any_result_still_has_a_report(add_run: AddRun) -> None:
    shown = _shown(report_view(_report(add_run, outcome=JobOutcome.EXPIRED)), 80)
    assert "exit code 6" in shown


def test_an_emulated_device_is_called_one(add_run: AddRun) -> None:
    report = _report(add_run)
    device = report.devices[0].model_copy(update={"virtual": True})
    shown = _shown(report_view(report.model_copy(update={"devices": [device]})), 100)
    assert "nothing here was measured on a phone" in shown


@pytest.mark.parametrize("width", [40, 200])
def test_ids_stay_whole_in_lists(add_run: AddRun, width: int) -> None:
    run = add_run()
    shown = _shown(runs_table([run.view()]), width)
    assert max(len(line) for line in shown.splitlines()) <= width
    assert run.run_id in shown if width == 200 else run.run_id[:4] in shown


def test_workloads_graphs_and_devices_have_their_facts() -> None:
    assert "prefix_tokens" in _shown(
        workload_view(next(v for v in catalogue() if v.name == "shared-prefix")), 90
    )
    graphs = compile_request(WorkloadRequest(name="chain"))
    assert "output of planner/0" in _shown(graphs_view(graphs), 200)
    assert "8.0 GB" in _shown(device_view(host_device()), 80)


def test_a_reason_of_the_registry_says_what_to_do_and_a_sentence_stays_as_it_is() -> None:
    assert reason_text("battery_low") == "battery_low: charge the device"
    assert reason_text("trusted: unlock the iPhone, tap Trust") == "trusted: unlock the iPhone, tap Trust"


def test_a_device_is_named_with_its_system_and_a_trial_that_never_began_did_not_complete(
    add_run: AddRun,
) -> None:
    report = _report(add_run)
    (device,) = report.devices
    device.arms["paged"] = device.arms["paged"].model_copy(update={"trials": 1, "trials_failed": 1})
    assert device.conditions is not None
    debian = device.conditions.model_copy(update={"os_name": "Debian"})
    named = device.model_copy(update={"os_version": "12", "conditions": debian})
    shown = _shown(report_view(report.model_copy(update={"devices": [named]})), 200)
    assert "(testhost, Debian 12)" in shown
    assert "paged, 0 of 1 trial" in shown
