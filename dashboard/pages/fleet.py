"""The fleet: every device with its state and why, what it is, and what runs on it."""

from collections.abc import Mapping, Sequence
from typing import Final

from dash import Dash, Input, Output, dcc, html
from dash.development.base_component import Component

from contract.rest import DeviceView, RunView
from contract.states import DeviceState
from dashboard.client import FarmClient, FarmReader
from dashboard.pages.addresses import RUN_PATH
from dashboard.pages.reading import Failed, read
from dashboard.parts.badges import badge, moment, virtual_badge
from dashboard.parts.panels import command, loading, notice, page_head, panel
from dashboard.parts.tables import Column, Content, table
from dashboard.wording import words
from measures.wording import megabytes, short_ids, typeset

REFRESH_MS: Final = 5_000
_COLUMNS: Final = (
    Column("Device"),
    Column("State"),
    Column("Why"),
    Column("Model"),
    Column("System"),
    Column("Runs now"),
    Column("Seen"),
)


def layout(**_: object) -> html.Div:
    """The skeleton; query parameters are of no use here."""
    return html.Div(
        [
            page_head("Fleet", "Every device of the farm, with its state and the reason for it."),
            dcc.Interval(id="fleet-tick", interval=REFRESH_MS),
            html.Div(loading("the devices"), id="fleet-body"),
        ]
    )


def connect(app: Dash, client: FarmClient) -> None:
    """Fill the page, and again every REFRESH_MS; the next look waits for the answer of the last."""

    @app.callback(
        Output("fleet-body", "children"),
        Input("fleet-tick", "n_intervals"),
        running=[(Output("fleet-tick", "disabled"), True, False)],
    )
    async def fill(_: int | None) -> Component | list[Component]:
        found = await read(client, _ask)
        return found.notice if isinstance(found, Failed) else fleet_body(*found)


async def _ask(reader: FarmReader) -> tuple[list[DeviceView], list[RunView]]:
    """The devices and, where one is at work, the newest runs, which tell what it works on."""
    devices = (await reader.devices()).devices
    is_working = any(device.attempt_id for device in devices)
    return devices, (await reader.runs()).runs if is_working else []


def fleet_body(devices: Sequence[DeviceView], runs: Sequence[RunView]) -> list[Component]:
    """A line of counts and the table; without devices, how to get one."""
    if not devices:
        return [_no_device()]
    working = {attempt.attempt_id: run for run in runs for job in run.jobs for attempt in job.attempts}
    short = short_ids(device.device_id for device in devices)
    rows = [_row(device, short[device.device_id], working) for device in devices]
    return [panel(_counts(devices), [table(_COLUMNS, rows, "Devices of the farm")])]


def _no_device() -> Component:
    body: list[Component | str] = [
        command("dynofarm up"),
        " starts the controller with this machine as a device; ",
        command("dynofarm agent"),
        " on another machine adds that one. It appears here within seconds.",
    ]
    return notice("empty", "No device has reported yet.", body)


def _counts(devices: Sequence[DeviceView]) -> str:
    ready = sum(device.state is DeviceState.READY for device in devices)
    working = sum(device.attempt_id is not None for device in devices)
    noun = "device" if len(devices) == 1 else "devices"
    return f"{len(devices)} {noun}: {ready} ready, {working} at work"


def _row(device: DeviceView, short_id: str, working: Mapping[str, RunView]) -> list[Content]:
    memory = f"{typeset(megabytes(device.memory_bytes))} memory" if device.memory_bytes is not None else ""
    mark = virtual_badge() if device.virtual else html.Div(str(device.kind), className="quiet")
    return [
        [html.Strong(short_id, title=device.device_id), " ", mark],
        badge(device.state),
        "; ".join(words(reason) for reason in device.reasons) or "–",
        [device.device_model, html.Div(memory, className="quiet")],
        [f"{device.os_name} {device.os_version}", html.Div(device.os_build, className="quiet")],
        _work(device, working),
        moment(device.last_seen_at),
    ]


def _work(device: DeviceView, working: Mapping[str, RunView]) -> Content:
    if device.attempt_id is None:
        return "–"
    run = working.get(device.attempt_id)
    if run is None:
        return f"attempt {device.attempt_id}"
    return dcc.Link(f"{run.workload} on {run.model}", href=RUN_PATH.format(run_id=run.run_id))
