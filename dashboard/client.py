"""Asks the controller's REST surface with the viewer's own session: a page shows and does what they may.

Only the session cookie, one try with a deadline: a page asks again by itself.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from contract import routes
from contract.artifacts import ArtifactList
from contract.ids import DeviceId, RunId
from contract.queries import ComparisonQuery, DevicesQuery, RunsQuery
from contract.rest import Comparison, DevicePage, DeviceView, LiveView, RunPage, RunReport, RunView
from dashboard.errors import DashboardError, dashboard_error_of, not_found, not_signed_in
from rest.errors import RestError
from rest.transport import AsyncTransport, Caller
from rest.tries import Patience

CALL_DEADLINE_S: Final = 5.0
MANY_DEADLINE_S: Final = 8.0
MAX_CALLS_AT_ONCE: Final = 4

_RUN_ID: Final = TypeAdapter(RunId)
_DEVICE_ID: Final = TypeAdapter(DeviceId)

Answer = TypeVar("Answer")
Query = TypeVar("Query", bound=BaseModel)


class FarmReader:
    """The farm as one viewer may use it; every method raises a DashboardError when there is no answer."""

    def __init__(self, rest: AsyncTransport) -> None:
        self._rest = rest
        self._slots = asyncio.Semaphore(MAX_CALLS_AT_ONCE)

    async def devices(self) -> DevicePage:
        """Every device of the farm, all pages in one."""
        found: list[DeviceView] = []
        query = DevicesQuery()
        while True:
            page = await self._get("the list of devices", routes.LIST_DEVICES, query)
            found += page.devices
            # A server that does not move on must not be asked for ever.
            if page.next_page_token is None or page.next_page_token == query.page_token:
                return DevicePage(devices=found)
            query = query.model_copy(update={"page_token": page.next_page_token})

    async def device(self, device_id: str) -> DeviceView:
        """One device; an error also for a text that is not an id."""
        what = f"device {_checked(_DEVICE_ID, device_id, 'device')}"
        return await self._get(what, routes.GET_DEVICE, device_id=device_id)

    async def runs(self, page_token: str | None = None) -> RunPage:
        """A page of runs, newest first."""
        return await self._get(
            "the list of runs", routes.LIST_RUNS, _query(RunsQuery, page_token=page_token or None)
        )

    async def run(self, run_id: str) -> RunView:
        """One run with its jobs."""
        return await self._get(_run(run_id), routes.GET_RUN, run_id=run_id)

    async def report(self, run_id: str) -> RunReport:
        return await self._get(_run(run_id), routes.GET_REPORT, run_id=run_id)

    async def cancel(self, run_id: str) -> RunView:
        """End what is not done of the run."""
        return await self._get(_run(run_id), routes.CANCEL_RUN, run_id=run_id)

    async def submit_again(self, run_id: str) -> RunView:
        """A new run of the same request."""
        request = await self._get(_run(run_id), routes.GET_REQUEST, run_id=run_id)
        try:
            return await self._rest.call(routes.SUBMIT_RUN, request)
        except RestError as error:
            raise dashboard_error_of(error, _run(run_id)) from error

    async def artifacts(self, run_id: str) -> ArtifactList:
        """The files that the run's attempts left."""
        return await self._get(_run(run_id), routes.LIST_ARTIFACTS, run_id=run_id)

    async def live(self, run_id: str) -> LiveView:
        """The newest attempt's figures."""
        return await self._get(_run(run_id), routes.GET_LIVE, run_id=run_id)

    async def comparison(self, run_id: str, params: Mapping[str, str]) -> Comparison:
        """Two runs, metric by metric; `not-comparable` when they should not be compared unless forced."""
        query = _query(ComparisonQuery, **params)
        return await self._get(f"comparison of {_run(run_id)}", routes.GET_COMPARISON, query, run_id=run_id)

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

    async def _get(
        self, what: str, route: routes.Route[Answer], query: BaseModel | None = None, **names: str
    ) -> Answer:
        try:
            return await self._rest.call(route, None, query, **names)
        except RestError as error:
            raise dashboard_error_of(error, what) from error


class FarmClient:
    """Opens readers on one controller."""

    def __init__(self, base_url: str, deadline_s: float = CALL_DEADLINE_S) -> None:
        """`base_url` is where this process reaches the REST surface, without /v1."""
        self._base_url = base_url
        self._caller = Caller(Patience(call_s=deadline_s, give_up_after_s=0.0))

    @asynccontextmanager
    async def reading_as(self, session_cookie: str | None) -> AsyncIterator[FarmReader]:
        """A reader that forwards this cookie; an error when there is none.

        A connection belongs to the event loop that opened it, so each callback has its own.
        """
        if not session_cookie or not (session_cookie.isascii() and session_cookie.isprintable()):
            raise not_signed_in()
        rest = AsyncTransport(self._base_url, self._caller)
        rest.show_session(session_cookie)
        try:
            yield FarmReader(rest)
        finally:
            await rest.close()


def _run(run_id: str) -> str:
    return f"run {_checked(_RUN_ID, run_id, 'run')}"


def _query(kind: type[Query], **params: str | None) -> Query:
    """Of what stands in an address; an error for what the controller would refuse."""
    try:
        return kind.model_validate(params)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise DashboardError("This address cannot be shown.", f"{where}: {first['msg']}.") from None


def _checked(ids: TypeAdapter[str], given: str, kind: str) -> str:
    """The id; an error for any other text, before anybody is asked."""
    try:
        return ids.validate_python(given)
    except ValidationError:
        raise not_found(f"{kind} {given[:80]!r}") from None
