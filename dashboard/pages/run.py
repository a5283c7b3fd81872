"""One run: live figures while it runs, its report when it is done. Only while it runs, a look every second.

Dash's websocket callbacks were not taken: they hold a worker per open page, outlive the session that opened
them, and gain nothing over one short request a second.
"""

import asyncio
from typing import Any, Final

import plotly.graph_objects as go
from dash import Dash, Input, Output, State, dcc, html

from dashboard.client import FarmClient, FarmReader
from dashboard.figures.theme import HEIGHT_PX
from dashboard.pages.reading import Failed, read
from dashboard.pages.run_actions import connect_actions, run_actions
from dashboard.pages.run_snapshot import (
    FOR_EVER,
    NEVER,
    PageUpdate,
    RunSnapshot,
    ShownState,
    changes_only,
    page_update,
    take_snapshot,
)
from dashboard.parts.panels import grid, live_graph, loading

TICK_MS: Final = 1_000
FIGURES: Final = ("run-rate", "run-footprint", "run-blocks", "run-ttft")


def layout(run_id: str = "", **_: object) -> html.Div:
    """The skeleton; every figure has its place from the start, so that nothing jumps."""
    blank = go.Figure(layout={"height": HEIGHT_PX, "template": "none"})
    live = [
        html.Div(id="run-progress"),
        grid([live_graph(blank, figure) for figure in FIGURES]),
        html.Div(id="run-texts"),
    ]
    return html.Div(
        [
            dcc.Store(id="run-id", data=run_id),
            dcc.Store(id="run-memory", data=ShownState().stored),
            dcc.Interval(id="run-tick", interval=TICK_MS),
            html.Div(loading("the run"), id="run-head"),
            run_actions(run_id),
            html.Div(id="run-jobs"),
            html.Div(live, id="run-live", hidden=True),
            html.Div(id="run-report"),
        ]
    )


def connect(app: Dash, client: FarmClient) -> None:
    """Fill the page and follow the run. A look waits for the answer of the last, and the last one stops."""
    connect_actions(app, client)

    @app.callback(
        [
            Output("run-head", "children"),
            Output("run-cancel-field", "hidden"),
            Output("run-jobs", "children"),
            Output("run-live", "hidden"),
            Output("run-progress", "children"),
            *(Output(figure, "figure") for figure in FIGURES),
            Output("run-texts", "children"),
            Output("run-report", "children"),
            Output("run-memory", "data"),
            Output("run-tick", "max_intervals"),
        ],
        Input("run-tick", "n_intervals"),
        State("run-id", "data"),
        State("run-memory", "data"),
        running=[(Output("run-tick", "disabled"), True, False)],
    )
    async def fill(_: int | None, run_id: str, remembered: dict[str, Any]) -> PageUpdate:
        memory = ShownState(**remembered)

        async def ask(reader: FarmReader) -> RunSnapshot:
            return await take_snapshot(reader, run_id, memory)

        found = await read(client, ask)
        if isinstance(found, Failed):
            limit = FOR_EVER if found.will_pass else NEVER
            return changes_only(PageUpdate(head=found.notice, max_intervals=limit), memory)
        # Figures take some hundredths of a second, and this event loop also serves the agents.
        return await asyncio.to_thread(page_update, found)
