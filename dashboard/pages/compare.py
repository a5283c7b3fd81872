"""Two runs side by side, metric by metric. The address names the choice, so that it can be sent to others."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from dash import Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component

from contract.problems import ProblemCode
from contract.rest import Comparison, DeviceReportView, RunReport, RunView
from contract.states import RunState
from dashboard.client import FarmClient, FarmReader
from dashboard.errors import DashboardError
from dashboard.pages.addresses import comparison as comparison_address
from dashboard.pages.comparison_body import comparison_body, refusal_notice
from dashboard.pages.reading import Failed, read
from dashboard.parts.panels import error_notice, loading, notice, page_head
from dashboard.wording import timestamp

_FIELDS: Final = ("run", "baseline", "arm", "device_model", "variant")
_LABELS: Final = ("Run", "Baseline run", "Arm", "Device model", "Variant")

Options = list[dict[str, str]]


@dataclass(frozen=True, slots=True)
class Choice:
    """What the address names; empty where it names nothing."""

    run: str = ""
    baseline: str = ""
    arm: str = ""
    device_model: str = ""
    variant: str = ""
    force: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether there is something to compare."""
        return bool(self.run and self.baseline)

    @property
    def query(self) -> dict[str, str]:
        """Parameters of the REST call."""
        wanted = {name: getattr(self, name) for name in (*_FIELDS[1:], "force")}
        return {name: value for name, value in wanted.items() if value}


@dataclass(frozen=True, slots=True)
class Sides:
    """The runs that can be chosen, and the reports of the two that are."""

    runs: list[RunView]
    reports: dict[str, RunReport]

    def results(self, choice: Choice, run_id: str) -> list[DeviceReportView]:
        """The run's results that the choice leaves over."""
        report = self.reports.get(run_id)
        return [
            found
            for found in (report.devices if report else [])
            if choice.device_model in ("", found.device_model) and choice.variant in ("", found.variant)
        ]


def layout(**query: object) -> html.Div:
    """The skeleton: a form, and the place of the result. Unknown parameters are passed over."""
    known = {
        name: value for name, value in query.items() if name in Choice.__slots__ and isinstance(value, str)
    }
    choice = Choice(**known)
    fields = [
        html.Div(
            [html.Label(label, htmlFor=f"compare-{name}"), _dropdown(name, getattr(choice, name))],
            id=f"compare-{name}-field",
            className="field",
            hidden=name in ("device_model", "variant"),
        )
        for name, label in zip(_FIELDS, _LABELS, strict=True)
    ]
    return html.Div(
        [
            page_head(
                "Compare two runs", "Medians and spreads of one arm, under the conditions of each run."
            ),
            dcc.Location(id="compare-address", refresh="callback-nav"),
            dcc.Store(id="compare-choice", data={**known}),
            html.Div(
                [*fields, html.Button("Compare", id="compare-go", className="button")], className="form"
            ),
            html.Div(loading("the runs"), id="compare-body"),
        ]
    )


def _dropdown(name: str, value: str) -> dcc.Dropdown:
    # With the value among its options from the start: dash drops a value that is not.
    options = [{"value": value, "label": value}] if value else []
    return dcc.Dropdown(
        id=f"compare-{name}", value=value or None, options=options, placeholder="choose", clearable=True
    )


def connect(app: Dash, client: FarmClient) -> None:
    """Fill form and result from the address; the button writes the form into the address."""

    @app.callback(
        [
            *(Output(f"compare-{name}", "options") for name in _FIELDS),
            Output("compare-device_model-field", "hidden"),
            Output("compare-variant-field", "hidden"),
            Output("compare-body", "children"),
        ],
        Input("compare-choice", "data"),
    )
    async def fill(chosen: dict[str, str]) -> list[Any]:
        choice = Choice(**chosen)

        async def ask(reader: FarmReader) -> list[Any]:
            return await _ask(reader, choice)

        found = await read(client, ask)
        return [[]] * len(_FIELDS) + [True, True, found.notice] if isinstance(found, Failed) else found

    @app.callback(
        Output("compare-address", "search"),
        Input("compare-go", "n_clicks"),
        [State(f"compare-{name}", "value") for name in _FIELDS],
        prevent_initial_call=True,
    )
    def go(_: int, *values: str | None) -> str:
        chosen = {name: value or "" for name, value in zip(_FIELDS, values, strict=True)}
        return "?" + comparison_address(**chosen).partition("?")[2]


async def _ask(reader: FarmReader, choice: Choice) -> list[Any]:
    """At most four calls: the runs, the two reports, the comparison."""
    runs = [run for run in (await reader.runs()).runs if run.state is RunState.COMPLETED]
    if not choice.is_complete:
        return [*_options(Sides(runs, {}), choice), _invitation(runs)]
    sides = Sides(runs, await reader.reports({choice.run, choice.baseline}))
    try:
        found = await reader.comparison(choice.run, choice.query)
    except DashboardError as error:
        if error.by_signing_in or error.will_pass:
            raise
        # The form stays filled: another choice may be allowed.
        return [*_options(sides, choice), _refusal(error, choice)]
    return [*_options(sides, choice), await asyncio.to_thread(_body, found, sides, choice)]


def _refusal(error: DashboardError, choice: Choice) -> Component:
    if error.code != ProblemCode.NOT_COMPARABLE:
        return error_notice(error)
    anyway = comparison_address(**{**_named(choice), "force": "true"})
    return refusal_notice(error.advice, anyway)


def _body(found: Comparison, sides: Sides, choice: Choice) -> list[Component]:
    before, after = (sides.results(choice, run_id) for run_id in (choice.baseline, choice.run))
    # The controller compares one result with one: where more are left over, it has refused already.
    return comparison_body(found, before[0] if before else None, after[0] if after else None)


def _named(choice: Choice) -> dict[str, str]:
    return {"run": choice.run, **choice.query}


def _invitation(runs: Sequence[RunView]) -> Component:
    if len(runs) < 2:
        body = ["A comparison needs two completed runs; the page of runs shows how to submit one."]
        return notice("empty", "There is nothing to compare yet.", body)
    return notice("hint", "Choose two runs.", ["The change is that of the run against the baseline run."])


def _options(sides: Sides, choice: Choice) -> list[Any]:
    """Options of each field, then whether the fields for device model and variant are hidden."""
    runs = _run_options(sides.runs, [choice.run, choice.baseline])
    results = [found for report in sides.reports.values() for found in report.devices]
    arms = _texts(
        choice.arm,
        *(arm for found in results for arm in found.arms),
        *(arm for run in sides.runs for arm in (run.candidate, run.baseline)),
    )
    models = _texts(choice.device_model, *(found.device_model for found in results))
    variants = _texts(choice.variant, *(found.variant for found in results))
    return [runs, runs, arms, models, variants, len(models) < 2, len(variants) < 2]


def _run_options(runs: Sequence[RunView], chosen: Sequence[str]) -> Options:
    """Completed runs, and those that the address names although the list does not."""
    listed = [
        {"value": run.run_id, "label": f"…{run.run_id[-8:]}, {run.workload}, {timestamp(run.created_at)}"}
        for run in runs
    ]
    known = {option["value"] for option in listed}
    return listed + [
        {"value": run, "label": run} for run in dict.fromkeys(chosen) if run and run not in known
    ]


def _texts(*values: str) -> Options:
    """Each text once; an empty one is not an option."""
    return [{"value": value, "label": value} for value in dict.fromkeys(values) if value]
