"""One run: live figures while it runs, its report when it is done. Only while it runs, a look every second.

Dash's websocket callbacks were not taken: they hold a worker per open page, outlive the session that opened
them, and gain nothing over one short request a second.
"""

import asyncio
from typing import Any, Final, NamedTuple

import plotly.graph_objects as go
from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from contract.rest import DeviceView, LiveView, RunReport, RunView
from dashboard.client import FarmClient, FarmReader
from dashboard.figures.live import footprint_figure, kv_blocks_figure, output_rate_figure
from dashboard.figures.theme import HEIGHT_PX, Subject, subject_of
from dashboard.figures.ttft import live_ttft_figure
from dashboard.pages.reading import Failed, read
from dashboard.pages.run_head import device_at_work, is_live, jobs_done, jobs_panel, run_head
from dashboard.pages.run_report import report_body
from dashboard.parts.panels import grid, live_graph, loading, notice, panel
from dashboard.wording import sentence, words

TICK_MS: Final = 1_000
FIGURES: Final = ("run-rate", "run-footprint", "run-blocks", "run-ttft")
_NEVER: Final = 0
_FOR_EVER: Final = -1


class Memory(NamedTuple):
    """What the page remembers between two looks, so that nothing is asked for twice."""

    device_id: str
    device_model: str
    virtual: bool
    reported_jobs: int

    @property
    def subject(self) -> Subject:
        """Whom the live figures are about."""
        return Subject(self.device_id, self.device_model, virtual=self.virtual)


FORGETFUL: Final = Memory("", "", virtual=False, reported_jobs=0)


class Look(NamedTuple):
    """One look at the run. live: None once it is completed; report: None where the shown one still holds."""

    run: RunView
    live: LiveView | None
    report: RunReport | None
    memory: Memory


class Filling(NamedTuple):
    """The outputs of the callback, in their order."""

    head: Any
    jobs: Any
    live_is_hidden: Any
    progress: Any
    rate: Any
    footprint: Any
    blocks: Any
    ttft: Any
    texts: Any
    report: Any
    memory: Any
    max_intervals: Any


_KEEP: Final = Filling(*[no_update] * len(Filling._fields))


def layout(run_id: str = "", **_: object) -> html.Div:
    """The skeleton; every figure has its place from the start, so that nothing jumps."""
    waiting = go.Figure(layout={"height": HEIGHT_PX, "template": "none"})
    live = [
        html.Div(id="run-progress"),
        grid([live_graph(waiting, figure) for figure in FIGURES]),
        html.Div(id="run-texts"),
    ]
    return html.Div(
        [
            dcc.Store(id="run-id", data=run_id),
            dcc.Store(id="run-memory", data=list(FORGETFUL)),
            dcc.Interval(id="run-tick", interval=TICK_MS),
            html.Div(loading("the run"), id="run-head"),
            html.Div(id="run-jobs"),
            html.Div(live, id="run-live", hidden=True),
            html.Div(id="run-report"),
        ]
    )


def connect(app: Dash, client: FarmClient) -> None:
    """Fill the page and follow the run. A look waits for the answer of the last, and the last one stops."""

    @app.callback(
        [
            Output("run-head", "children"),
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
    async def fill(_: int | None, run_id: str, remembered: list[Any]) -> Filling:
        memory = Memory(*remembered)

        async def ask(reader: FarmReader) -> Look:
            return await look(reader, run_id, memory)

        found = await read(client, ask)
        if isinstance(found, Failed):
            return _KEEP._replace(head=found.notice, max_intervals=_FOR_EVER if found.will_pass else _NEVER)
        return filling(found)


async def look(reader: FarmReader, run_id: str, memory: Memory) -> Look:
    """At most four calls: run and live view, the device when it is new, the report when a job is done."""
    run, live = await asyncio.gather(reader.run(run_id), reader.live(run_id))
    device_id = device_at_work(run, live)
    if device_id is not None and device_id != memory.device_id:
        memory = _met(memory, await reader.device(device_id))
    report = None
    if not is_live(run) or jobs_done(run) > memory.reported_jobs:
        report = await reader.report(run_id)
        memory = memory._replace(reported_jobs=jobs_done(run))
    return Look(run, live if is_live(run) else None, report, memory)


def _met(memory: Memory, device: DeviceView) -> Memory:
    subject = subject_of(device)
    return memory._replace(
        device_id=subject.device_id, device_model=subject.device_model, virtual=subject.virtual
    )


def filling(seen: Look) -> Filling:
    """What a look puts on the page."""
    filled = _KEEP._replace(
        head=run_head(seen.run),
        jobs=jobs_panel(seen.run.jobs),
        live_is_hidden=seen.live is None or seen.live.attempt_id is None,
        memory=list(seen.memory),
        max_intervals=_FOR_EVER if is_live(seen.run) else _NEVER,
    )
    if seen.report is not None:
        filled = filled._replace(report=report_body(seen.report))
    elif seen.live is not None and seen.live.attempt_id is None:
        filled = filled._replace(report=_waiting(seen.run))
    elif seen.memory.reported_jobs == 0:
        filled = filled._replace(report=[])
    return filled if seen.live is None else _with_live(filled, seen, seen.live)


def _with_live(filled: Filling, seen: Look, live: LiveView) -> Filling:
    figures = live_figures(live, [seen.run.baseline, seen.run.candidate], seen.memory.subject)
    return filled._replace(
        progress=progress(live),
        rate=figures[0],
        footprint=figures[1],
        blocks=figures[2],
        ttft=figures[3],
        texts=_texts(live.sample_texts),
    )


def live_figures(live: LiveView, arms: list[str], subject: Subject) -> tuple[go.Figure, ...]:
    """In the order of FIGURES."""
    return (
        output_rate_figure(live, subject),
        footprint_figure(live, subject),
        kv_blocks_figure(live, subject),
        live_ttft_figure(live, arms, subject),
    )


def progress(live: LiveView) -> Component:
    """How many trials are done, as words and as a bar."""
    trial = f", trial {live.trial} is under way" if live.trial else ""
    told = f"{words(live.state).capitalize()}: {live.trials_done} of {live.trials_total} trials done{trial}"
    bar = html.Progress(value=str(live.trials_done), max=str(max(live.trials_total, 1)))
    return html.Div([html.P(told), bar], className="progress", role="status")


def _waiting(run: RunView) -> Component:
    reasons = sorted({job.waiting_reason for job in run.jobs if job.waiting_reason})
    why = "; ".join(reasons) or "a device takes it within seconds"
    body = [f"{sentence(why)} The page follows by itself. The fleet shows which devices there are."]
    return notice("empty", "No device has begun yet.", body)


def _texts(texts: list[str]) -> Component | list[Component]:
    if not texts:
        return []
    return panel("What the agents write", [html.Div([html.Blockquote(t) for t in texts], className="texts")])
