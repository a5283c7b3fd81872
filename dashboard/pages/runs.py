"""All runs, newest first: state, outcome, what was measured, and what came out."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dash import Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component

from contract.rest import RunPage, RunReport, RunView
from contract.states import RunState
from dashboard.client import FarmClient, FarmReader
from dashboard.pages.addresses import RUN_PATH, comparison, older_runs
from dashboard.pages.reading import Failed, read
from dashboard.parts.badges import badge, moment, virtual_badge
from dashboard.parts.panels import command, loading, notice, page_head, panel
from dashboard.parts.tables import Column, Content, table
from dashboard.wording import gate_verdict
from measures.wording import reduction, speedup, typeset

REFRESH_MS: Final = 5_000
KEPT_RESULTS: Final = 512
_COLUMNS: Final = (
    Column("Run"),
    Column("State"),
    Column("Workload"),
    Column("Model"),
    Column("Wall time"),
    Column("Verdict"),
    Column(""),
)


@dataclass(frozen=True, slots=True)
class DeviceResult:
    """The headline of one device of a run."""

    device_model: str
    virtual: bool
    wall_reduction_percent: float | None
    speedup: float | None


@dataclass(frozen=True, slots=True)
class RunResult:
    """What the table shows of a completed run's report."""

    verdict: str
    devices: tuple[DeviceResult, ...]


class ResultShelf:
    """Results of completed runs, which do not change: each report is read once, the newest KEPT_RESULTS stay.

    What is on it was read with some viewer's session. It is only shown beside a list of runs that the present
    viewer's own session has read, and every viewer may see every run.
    """

    def __init__(self, capacity: int = KEPT_RESULTS) -> None:
        self._capacity = capacity
        self._results: OrderedDict[str, RunResult] = OrderedDict()

    async def results(self, reader: FarmReader, runs: Sequence[RunView]) -> dict[str, RunResult]:
        """Results of those of the runs that are completed; one that could not be read is left out."""
        completed = [run.run_id for run in runs if run.state is RunState.COMPLETED]
        reports = await reader.reports(run_id for run_id in completed if run_id not in self._results)
        for run_id, report in reports.items():
            self._results[run_id] = result_of(report)
        for run_id in completed:
            if run_id in self._results:
                self._results.move_to_end(run_id)
        found = {run_id: self._results[run_id] for run_id in completed if run_id in self._results}
        while len(self._results) > self._capacity:
            self._results.popitem(last=False)
        return found


def result_of(report: RunReport) -> RunResult:
    """The headline of every device, and the verdict."""
    devices = tuple(
        DeviceResult(found.device_model, found.virtual, found.wall_reduction_percent, found.speedup)
        for found in report.devices
    )
    return RunResult(gate_verdict(report.gate), devices)


def layout(page_token: str = "", **_: object) -> html.Div:
    """The skeleton; `page_token` comes from the address."""
    return html.Div(
        [
            page_head("Runs", "Newest first. A run compares its arms on one or more devices."),
            dcc.Store(id="runs-page", data=page_token),
            dcc.Interval(id="runs-tick", interval=REFRESH_MS),
            html.Div(loading("the runs"), id="runs-body"),
        ]
    )


def connect(app: Dash, client: FarmClient) -> None:
    """Fill the page, and again every REFRESH_MS; the next look waits for the answer of the last."""
    shelf = ResultShelf()

    @app.callback(
        Output("runs-body", "children"),
        Input("runs-tick", "n_intervals"),
        State("runs-page", "data"),
        running=[(Output("runs-tick", "disabled"), True, False)],
    )
    async def fill(_: int | None, page_token: str) -> Component | list[Component]:
        async def ask(reader: FarmReader) -> tuple[RunPage, dict[str, RunResult]]:
            page = await reader.runs(page_token)
            return page, await shelf.results(reader, page.runs)

        found = await read(client, ask)
        return found.notice if isinstance(found, Failed) else runs_body(*found)


def runs_body(page: RunPage, results: Mapping[str, RunResult]) -> list[Component]:
    """The table and the way to older runs; without runs, how to submit one."""
    if not page.runs:
        return [_no_run()]
    rows = [_row(run, results.get(run.run_id)) for run in page.runs]
    active = sum(run.state is not RunState.COMPLETED for run in page.runs)
    count = "1 run" if len(page.runs) == 1 else f"{len(page.runs)} runs"
    title = f"{count}, {active} live" if active else count
    body: list[Component] = [panel(title, [table(_COLUMNS, rows, "Runs, newest first")])]
    if page.next_page_token:
        older = dcc.Link("Older runs", href=older_runs(page.next_page_token), className="button")
        body.append(html.P(older))
    return body


def _no_run() -> Component:
    body: list[Component | str] = [
        "Submit one: ",
        command("dynofarm submit shared-prefix"),
        ", or let ",
        command("make demo"),
        " do it. It appears here at once.",
    ]
    return notice("empty", "No run yet.", body)


def _row(run: RunView, result: RunResult | None) -> list[Content]:
    link = dcc.Link(html.Span(_short(run.run_id), title=run.run_id), href=RUN_PATH.format(run_id=run.run_id))
    compare = dcc.Link("Compare", href=comparison(run=run.run_id, arm=run.candidate))
    is_completed = run.state is RunState.COMPLETED
    return [
        [link, html.Div(moment(run.created_at), className="quiet")],
        badge(run.outcome or run.state),
        [run.workload, html.Div(f"{run.candidate} against {run.baseline}", className="quiet")],
        run.model,
        [_headline(device) for device in result.devices] or "–" if result else "–",
        result.verdict if result else ("not available" if is_completed else "–"),
        compare if is_completed else "",
    ]


def _short(run_id: str) -> str:
    """An id's last characters: its first ones are the same for all runs of a day."""
    return f"…{run_id[-8:]}"


def _headline(device: DeviceResult) -> Component:
    marks: list[Component | str] = [" ", virtual_badge()] if device.virtual else []
    told = typeset(f"{reduction(device.wall_reduction_percent)}, {speedup(device.speedup)}")
    return html.Div([told, html.Div([device.device_model, *marks], className="quiet")])
