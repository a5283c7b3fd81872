"""Reads the controller's REST surface with the viewer's own session, so a page shows what the viewer may see.

Only GET, only the session cookie, a deadline on every call. Answers are parsed here, once.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final, TypeVar

import httpx
from pydantic import BaseModel, TypeAdapter, ValidationError

from contract import routes
from contract.artifacts import ArtifactList
from contract.headers import SESSION_COOKIE
from contract.ids import DeviceId, RunId
from contract.problems import PROBLEM_MEDIA_TYPE, Problem
from contract.rest import Comparison, DevicePage, DeviceView, LiveView, RunPage, RunReport, RunView
from dashboard.errors import (
    ControllerUnreachableError,
    DashboardError,
    NotAllowedError,
    NotFoundError,
    NotSignedInError,
    RefusedError,
    UnexpectedAnswerError,
)
from dashboard.wording import sentence

CALL_DEADLINE_S: Final = 5.0
MANY_DEADLINE_S: Final = 8.0
MAX_CALLS_AT_ONCE: Final = 4

_RUN_ID: Final = TypeAdapter(RunId)
_DEVICE_ID: Final = TypeAdapter(DeviceId)

Answer = TypeVar("Answer", bound=BaseModel)


class FarmReader:
    """One viewer's reading of the farm; every method raises a DashboardError when there is no answer."""

    def __init__(self, http: httpx.AsyncClient, deadline_s: float) -> None:
        """`http` carries the viewer's cookie."""
        self._http = http
        self._deadline_s = deadline_s
        self._slots = asyncio.Semaphore(MAX_CALLS_AT_ONCE)

    async def devices(self) -> DevicePage:
        """Every device of the farm, all pages in one."""
        found: list[DeviceView] = []
        params: dict[str, str] = {}
        while True:
            page = await self._get("/v1/devices", params, DevicePage, "the list of devices")
            found += page.devices
            # A server that does not move on must not be asked for ever.
            if page.next_page_token is None or page.next_page_token == params.get("page_token"):
                return DevicePage(devices=found)
            params = {"page_token": page.next_page_token}

    async def device(self, device_id: str) -> DeviceView:
        """One device; NotFoundError also for a text that is no id."""
        what = f"device {_checked(_DEVICE_ID, device_id, 'device')}"
        return await self._get(f"/v1/devices/{device_id}", {}, DeviceView, what)

    async def runs(self, page_token: str | None = None) -> RunPage:
        """A page of runs, newest first."""
        params = {"page_token": page_token} if page_token else {}
        return await self._get("/v1/runs", params, RunPage, "the list of runs")

    async def run(self, run_id: str) -> RunView:
        """One run with its jobs."""
        what = f"run {_checked(_RUN_ID, run_id, 'run')}"
        return await self._get(f"/v1/runs/{run_id}", {}, RunView, what)

    async def report(self, run_id: str) -> RunReport:
        """The run's results so far."""
        what = f"run {_checked(_RUN_ID, run_id, 'run')}"
        return await self._get(f"/v1/runs/{run_id}/report", {}, RunReport, what)

    async def artifacts(self, run_id: str) -> ArtifactList:
        """The files that the run's attempts left."""
        what = f"run {_checked(_RUN_ID, run_id, 'run')}"
        return await self._get(routes.LIST_ARTIFACTS.path(run_id=run_id), {}, ArtifactList, what)

    async def live(self, run_id: str) -> LiveView:
        """The newest attempt's figures."""
        what = f"run {_checked(_RUN_ID, run_id, 'run')}"
        return await self._get(f"/v1/runs/{run_id}/live", {}, LiveView, what)

    async def comparison(self, run_id: str, params: Mapping[str, str]) -> Comparison:
        """Two runs, metric by metric; RefusedError when they should not be compared and force is not set."""
        what = f"comparison of run {_checked(_RUN_ID, run_id, 'run')}"
        return await self._get(f"/v1/runs/{run_id}/comparison", params, Comparison, what)

    async def reports(self, run_ids: Iterable[str]) -> dict[str, RunReport]:
        """The reports that arrive within MANY_DEADLINE_S, a few at a time; one that fails is left out."""
        tasks = {asyncio.ensure_future(self._report_in_turn(run_id)): run_id for run_id in run_ids}
        if not tasks:
            return {}
        done, late = await asyncio.wait(tasks, timeout=MANY_DEADLINE_S)
        for task in late:
            task.cancel()
        return {tasks[task]: report for task in done if (report := task.result()) is not None}

    async def _report_in_turn(self, run_id: str) -> RunReport | None:
        async with self._slots:
            try:
                return await self.report(run_id)
            except DashboardError:
                return None

    async def _get(self, path: str, params: Mapping[str, str], answer: type[Answer], what: str) -> Answer:
        try:
            async with asyncio.timeout(self._deadline_s):
                response = await self._http.get(path, params=dict(params))
        except TimeoutError:
            raise ControllerUnreachableError(f"no answer within {self._deadline_s:g} s") from None
        except httpx.HTTPError as error:
            raise ControllerUnreachableError(type(error).__name__) from error
        if response.status_code != HTTPStatus.OK:
            raise _failure(response, what)
        try:
            return answer.model_validate_json(response.content)
        except ValidationError as error:
            raise UnexpectedAnswerError(what) from error


class FarmClient:
    """Opens readers on one controller."""

    def __init__(self, base_url: str, deadline_s: float = CALL_DEADLINE_S) -> None:
        """`base_url` is where this process reaches the REST surface, without /v1."""
        self._base_url = base_url
        self._deadline_s = deadline_s
        # Made once: reading the system's certificates takes longer than a call.
        self._tls = ssl.create_default_context()

    @asynccontextmanager
    async def reading_as(self, session_cookie: str | None) -> AsyncIterator[FarmReader]:
        """A reader that forwards this cookie; NotSignedInError when there is none.

        A connection belongs to the event loop that opened it, so each callback has its own.
        """
        if not session_cookie:
            raise NotSignedInError
        async with httpx.AsyncClient(
            base_url=self._base_url,
            headers={"Accept": "application/json", "Cookie": f"{SESSION_COOKIE}={session_cookie}"},
            timeout=self._deadline_s,
            verify=self._tls,
            # A proxy named in the environment must never see the viewer's session.
            trust_env=False,
        ) as http:
            yield FarmReader(http, self._deadline_s)


def _checked(ids: TypeAdapter[str], given: str, kind: str) -> str:
    """The id, which is safe in a path; NotFoundError for any other text."""
    try:
        return ids.validate_python(given)
    except ValidationError:
        raise NotFoundError(f"{kind} {given[:80]!r}") from None


def _failure(response: httpx.Response, what: str) -> DashboardError:
    """The error that a status other than 200 stands for."""
    problem = _problem(response)
    match response.status_code:
        case HTTPStatus.UNAUTHORIZED:
            return NotSignedInError()
        case HTTPStatus.FORBIDDEN:
            return NotAllowedError(problem.detail if problem else "The controller refused it.")
        case HTTPStatus.NOT_FOUND:
            return NotFoundError(what, sentence(problem.detail) if problem else "")
    if problem is not None:
        return RefusedError(problem)
    if response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return ControllerUnreachableError(f"status {response.status_code}")
    return UnexpectedAnswerError(what)


def _problem(response: httpx.Response) -> Problem | None:
    if not response.headers.get("content-type", "").startswith(PROBLEM_MEDIA_TYPE):
        return None
    try:
        return Problem.model_validate_json(response.content)
    except ValidationError:
        return None
