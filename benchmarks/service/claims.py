"""What devices that wait for work cost the controller: long polls of many devices, with an empty queue and
with jobs that none of them can run; and how soon a job that fits reaches one of them.

One controller process for each row. In a window, one whole turn of the long polls, each device asks once.
"""

import asyncio
import contextlib
import statistics
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from benchmarks.service.controller_process import ControllerProcess, running_controller
from benchmarks.service.waiting_devices import CLAIM_WAIT_S, MODEL, Fleet, enrol

_JOBS_PER_RUN: Final = 50
_GRANT_LIMIT_S: Final = 30.0
_LIST_LIMIT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Load:
    """How many devices wait, how many jobs fit none of them, and how many windows are metered."""

    devices: int
    queued_jobs: int
    windows: int


@dataclass(frozen=True, slots=True)
class Row:
    """What one load cost. Per cent are of one core, one for each window."""

    devices: int
    queued_jobs: int
    core_percent: list[float]
    core_percent_median: float
    resident_mb: float
    answers: dict[str, int]
    """Path and status, or the error of a call that got none."""
    list_runs_s: float | None
    """`GET /v1/runs`, the newest fifty, while the devices wait; None: it was refused."""
    grant_s: float | None
    """From sending a run that fits to the lease at a device that waited; None: none came in time."""


def measure(load: Load, database_url: str, tell: Any) -> dict[str, Any]:
    """One row."""
    with (
        tempfile.TemporaryDirectory(prefix="dynofarm-bench-") as home,
        running_controller(Path(home), database_url) as controller,
    ):
        tell(f"{load.devices} devices, {load.queued_jobs} queued jobs: preparing")
        _submit(controller, load.queued_jobs)
        return asdict(asyncio.run(_measure(controller, load, tell)))


async def _measure(controller: ControllerProcess, load: Load, tell: Any) -> Row:
    fleet = Fleet(controller.url, enrol(controller.database_url, load.devices))
    waiting = asyncio.create_task(fleet.wait_for_work(seconds_until_spread=CLAIM_WAIT_S))
    try:
        await asyncio.sleep(CLAIM_WAIT_S + 5.0)
        before = Counter(fleet.answers)
        shares = []
        for _ in range(load.windows):
            shares.append(await _core_percent(controller, CLAIM_WAIT_S))
            tell(f"{load.devices} devices, {load.queued_jobs} queued jobs: {shares[-1]:.2f} % of a core")
        answers = fleet.answers - before
        list_runs_s = await asyncio.to_thread(_list_runs_s, controller)
        grant_s = await _grant_s(controller, fleet)
    finally:
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
    return Row(
        devices=load.devices,
        queued_jobs=load.queued_jobs,
        core_percent=shares,
        core_percent_median=statistics.median(shares),
        resident_mb=round(controller.resident_mb(), 1),
        answers=dict(answers),
        list_runs_s=list_runs_s,
        grant_s=grant_s,
    )


async def _core_percent(controller: ControllerProcess, window_s: float) -> float:
    started_s, used_s = time.monotonic(), controller.processor_s()
    await asyncio.sleep(window_s)
    share = (controller.processor_s() - used_s) / (time.monotonic() - started_s)
    return round(100 * share, 2)


async def _grant_s(controller: ControllerProcess, fleet: Fleet) -> float | None:
    sent_s = time.monotonic()
    try:
        await asyncio.to_thread(_post_run, controller, {"selectors": [{"device_model": "bench"}]})
        async with asyncio.timeout(_GRANT_LIMIT_S):
            came_s, _ = await fleet.granted.get()
    except (TimeoutError, httpx.HTTPError):
        return None
    return round(came_s - sent_s, 4)


def _list_runs_s(controller: ControllerProcess) -> float | None:
    started_s = time.monotonic()
    try:
        with _client(controller) as client:
            client.get("/v1/runs").raise_for_status()
    except httpx.HTTPError:
        return None
    return round(time.monotonic() - started_s, 4)


def _submit(controller: ControllerProcess, job_count: int) -> None:
    """Runs for devices that are not there."""
    for first in range(0, job_count, _JOBS_PER_RUN):
        models = [f"absent-{number}" for number in range(first, min(first + _JOBS_PER_RUN, job_count))]
        selectors = [{"device_model": model} for model in models]
        _post_run(controller, {"selectors": selectors, "wait_for_capacity": True})


def _post_run(controller: ControllerProcess, request: dict[str, Any]) -> None:
    with _client(controller) as client:
        body = {"workload": {"name": "seed-5x2000"}, "model": MODEL, **request}
        client.post("/v1/runs", json=body).raise_for_status()


def _client(controller: ControllerProcess) -> httpx.Client:
    headers = {"Authorization": f"Bearer {controller.admin_token}"}
    return httpx.Client(base_url=controller.url, headers=headers, timeout=_LIST_LIMIT_S)
