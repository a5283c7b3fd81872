"""What a viewer can do with a run: cancel it, submit it again, copy the command for its trace."""

from typing import Any

from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from contract.rest import RunView
from dashboard.client import FarmClient, FarmReader
from dashboard.pages.addresses import RUN_PATH
from dashboard.pages.reading import Failed, read
from dashboard.parts.panels import command, notice

_CANCEL_QUESTION = "Cancel this run? What is measured already stays; what is not done is not measured."


def run_actions(run_id: str) -> html.Div:
    """The buttons. "Cancel" stays hidden until the run is known to be active."""
    trace = f"dynofarm trace {run_id}"
    cancel = dcc.ConfirmDialogProvider(
        html.Button("Cancel this run", className="button"), id="run-cancel", message=_CANCEL_QUESTION
    )
    return html.Div(
        [
            dcc.Location(id="run-address", refresh="callback-nav"),
            html.Div(
                [
                    html.Div(cancel, id="run-cancel-field", hidden=True),
                    html.Button("Submit again", id="run-again", className="button"),
                    html.Span(["Trace: ", command(trace), dcc.Clipboard(content=trace, title="Copy")]),
                ],
                className="actions",
            ),
            html.Div(id="run-acted"),
        ]
    )


def connect_actions(app: Dash, client: FarmClient) -> None:
    """Carry out what is clicked; a refusal stands under the buttons."""

    @app.callback(
        Output("run-acted", "children"),
        Input("run-cancel", "submit_n_clicks"),
        State("run-id", "data"),
        prevent_initial_call=True,
    )
    async def cancel(_: int, run_id: str) -> Component:
        async def ask(reader: FarmReader) -> RunView:
            return await reader.cancel(run_id)

        found = await read(client, ask)
        if isinstance(found, Failed):
            return found.notice
        return notice("hint", "The run is cancelled.", ["Its devices stop at their next sign of life."])

    @app.callback(
        [Output("run-acted", "children", allow_duplicate=True), Output("run-address", "href")],
        Input("run-again", "n_clicks"),
        State("run-id", "data"),
        prevent_initial_call=True,
        # A second click must not make a second run.
        running=[(Output("run-again", "disabled"), True, False)],
    )
    async def again(_: int, run_id: str) -> list[Any]:
        async def ask(reader: FarmReader) -> RunView:
            return await reader.submit_again(run_id)

        found = await read(client, ask)
        if isinstance(found, Failed):
            return [found.notice, no_update]
        return [no_update, RUN_PATH.format(run_id=found.run_id)]
