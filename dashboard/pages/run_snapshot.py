"""One look at a run: what is asked, what of it goes onto the page, and what the page shows already."""

import asyncio
import hashlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import plotly.graph_objects as go
from dash import html, no_update
from dash.development.base_component import Component
from plotly.io.json import to_json_plotly

from contract.artifacts import ArtifactList, ArtifactView
from contract.rest import DeviceView, LiveView, RunReport, RunView
from dashboard.client import FarmReader
from dashboard.figures.live import footprint_figure, kv_blocks_figure, output_rate_figure
from dashboard.figures.theme import Subject, subject_of
from dashboard.figures.ttft import live_ttft_figure
from dashboard.pages.run_files import files_panel
from dashboard.pages.run_head import device_at_work, is_live, jobs_done, jobs_panel, run_head
from dashboard.pages.run_report import report_body
from dashboard.parts.panels import notice, panel
from dashboard.wording import sentence, words

NEVER: Final = 0
FOR_EVER: Final = -1


class ShownState(NamedTuple):
    """What the page remembers between two looks: nothing is asked for twice, and nothing drawn twice.

    shown: by output, a digest of what it shows.
    """

    device_id: str = ""
    device_model: str = ""
    virtual: bool = False
    reported_jobs: int = 0
    shown: Mapping[str, str] = MappingProxyType({})

    @property
    def subject(self) -> Subject:
        """Whom the live figures are about."""
        return Subject(self.device_id, self.device_model, virtual=self.virtual)

    @property
    def stored(self) -> dict[str, Any]:
        """As the browser keeps it."""
        return {**self._asdict(), "shown": dict(self.shown)}


class RunSnapshot(NamedTuple):
    """What was found. live: None once it is completed; report: None where the shown one still holds."""

    run: RunView
    live: LiveView | None
    report: RunReport | None
    memory: ShownState
    files: tuple[ArtifactView, ...] = ()
    """Asked for with the report: what was uploaded before its job was done."""


class PageUpdate(NamedTuple):
    """The outputs of the page's callback, in their order; no_update leaves one as it is."""

    head: Any = no_update
    cancel_is_hidden: Any = no_update
    jobs: Any = no_update
    live_is_hidden: Any = no_update
    progress: Any = no_update
    rate: Any = no_update
    footprint: Any = no_update
    blocks: Any = no_update
    ttft: Any = no_update
    texts: Any = no_update
    report: Any = no_update
    memory: Any = no_update
    max_intervals: Any = no_update


_COMPARED: Final = frozenset(PageUpdate._fields) - {
    "cancel_is_hidden",
    "live_is_hidden",
    "memory",
    "max_intervals",
}


async def take_snapshot(reader: FarmReader, run_id: str, memory: ShownState) -> RunSnapshot:
    """Run and live view, the device when it is new, report and files when a job is done."""
    run, live = await asyncio.gather(reader.run(run_id), reader.live(run_id))
    device_id = device_at_work(run, live)
    if device_id is not None and device_id != memory.device_id:
        memory = _met(memory, await reader.device(device_id))
    report, files = None, ArtifactList(run_id=run_id, artifacts=[])
    if not is_live(run) or jobs_done(run) > memory.reported_jobs:
        report, files = await asyncio.gather(reader.report(run_id), reader.artifacts(run_id))
        memory = memory._replace(reported_jobs=jobs_done(run))
    return RunSnapshot(run, live if is_live(run) else None, report, memory, tuple(files.artifacts))


def _met(memory: ShownState, device: DeviceView) -> ShownState:
    subject = subject_of(device)
    return memory._replace(
        device_id=subject.device_id, device_model=subject.device_model, virtual=subject.virtual
    )


def page_update(seen: RunSnapshot) -> PageUpdate:
    """What a look puts on the page, less what the page shows already."""
    filled = PageUpdate(
        head=run_head(seen.run),
        cancel_is_hidden=not is_live(seen.run),
        jobs=jobs_panel(seen.run.jobs),
        live_is_hidden=seen.live is None or seen.live.attempt_id is None,
        report=_report(seen),
        max_intervals=FOR_EVER if is_live(seen.run) else NEVER,
    )
    if seen.live is not None:
        filled = _with_live(filled, seen, seen.live)
    return changes_only(filled, seen.memory)


def changes_only(filled: PageUpdate, memory: ShownState) -> PageUpdate:
    """Keep what the page shows already, and remember what it shows now.

    Drawing the same again would cost the browser's machine, which may be the one that is measured.
    """
    shown = dict(memory.shown)
    kept: dict[str, Any] = {}
    for name in _COMPARED:
        value = getattr(filled, name)
        if value is not no_update:
            digest = hashlib.blake2b(to_json_plotly(value).encode(), digest_size=8).hexdigest()
            if shown.get(name) == digest:
                kept[name] = no_update
            shown[name] = digest
    return filled._replace(**kept, memory=memory._replace(shown=shown).stored)


def _report(seen: RunSnapshot) -> Any:
    """The new report, the notice of a run that waits, nothing before the first job is done, or the old."""
    if seen.report is not None:
        return [*report_body(seen.report), *files_panel(seen.files)]
    if seen.live is not None and seen.live.attempt_id is None:
        return _waiting(seen.run)
    return [] if seen.memory.reported_jobs == 0 else no_update


def _with_live(filled: PageUpdate, seen: RunSnapshot, live: LiveView) -> PageUpdate:
    rate, footprint, blocks, ttft = live_figures(
        live, [seen.run.baseline, seen.run.candidate], seen.memory.subject
    )
    return filled._replace(
        progress=_progress(live),
        rate=rate,
        footprint=footprint,
        blocks=blocks,
        ttft=ttft,
        texts=_texts(live.sample_texts),
    )


def live_figures(
    live: LiveView, arms: list[str], subject: Subject
) -> tuple[go.Figure, go.Figure, go.Figure, go.Figure]:
    """Output rate, footprint, KV blocks, TTFT by agent."""
    return (
        output_rate_figure(live, subject),
        footprint_figure(live, subject),
        kv_blocks_figure(live, subject),
        live_ttft_figure(live, arms, subject),
    )


def _progress(live: LiveView) -> Component:
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
