"""The typed client: one method per public route (contract/rest.py), every answer a contract type."""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, SecretStr

from client.connection import Ask, Connection, Patience
from contract import routes
from contract.administration import DeviceAction, EnrollmentTokenRequest, NewToken
from contract.events import Stream
from contract.headers import IDEMPOTENCY_KEY_HEADER
from contract.health import Health
from contract.queries import DevicesQuery
from contract.rest import (
    AttemptView,
    Comparison,
    DevicePage,
    DeviceView,
    EventsPage,
    GateView,
    JobExplanation,
    JobView,
    LiveView,
    MetricList,
    RunPage,
    RunReport,
    RunRequest,
    RunView,
    WorkloadList,
)
from contract.routes import Route

Answer = TypeVar("Answer")

EVENTS_PER_PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class ComparisonChoice:
    """Which of a run's results are compared: device_model and variant where there are several."""

    arm: str = "paged"
    force: bool = False
    device_model: str | None = None
    variant: str | None = None


class DynofarmClient:
    """Speaks to one controller. Every method raises a ClientError, and nothing else, when it fails."""

    def __init__(
        self,
        url: str,
        token: SecretStr,
        patience: Patience | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """`url` such as http://127.0.0.1:8000; `transport` replaces the network in tests."""
        self._connection = Connection(url, token, patience, transport)
        self.url = self._connection.url

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.__exit__(kind, error, trace)

    def call(
        self,
        route: Route[Answer],
        body: BaseModel | None = None,
        query: BaseModel | None = None,
        **names: str,
    ) -> Answer:
        """The answer of any route; `names` are the parameters of its path."""
        asked = query.model_dump(mode="json", exclude_none=True) if query is not None else {}
        ask = Ask(
            route.method,
            route.path(**names),
            route.answer,
            query=asked,
            body=body,
            idempotent=route.repeatable,
        )
        return self._connection.ask(ask)

    # --- runs

    def submit(self, request: RunRequest, idempotency_key: str = "") -> RunView:
        """The new run. One key for all tries, so a lost answer never makes a second run."""
        key = idempotency_key or secrets.token_urlsafe(24)
        headers = {IDEMPOTENCY_KEY_HEADER: key}
        return self._connection.ask(Ask("POST", "/v1/runs", RunView, body=request, headers=headers))

    def runs(self, page_token: str = "", limit: int = 50) -> RunPage:
        """Runs, newest first, from where `page_token` says."""
        query: dict[str, str | int | bool] = {"limit": limit}
        if page_token:
            query["page_token"] = page_token
        return self._connection.ask(Ask("GET", "/v1/runs", RunPage, query=query))

    def run(self, run_id: str) -> RunView:
        """A run with its jobs and attempts."""
        return self._connection.ask(Ask("GET", _path("runs", run_id), RunView))

    def request_of(self, run_id: str) -> RunRequest:
        """What was submitted, with every default filled in."""
        return self._connection.ask(Ask("GET", _path("runs", run_id) + "/request", RunRequest))

    def cancel(self, run_id: str) -> RunView:
        """Asks that the run end; a run that has ended stays as it is."""
        return self._connection.ask(Ask("POST", _path("runs", run_id) + ":cancel", RunView))

    def report(self, run_id: str) -> RunReport:
        """Results so far."""
        return self._connection.ask(Ask("GET", _path("runs", run_id) + "/report", RunReport))

    def gate(self, run_id: str) -> GateView:
        """The verdict; InconclusiveError while the run goes on."""
        return self._connection.ask(Ask("GET", _path("runs", run_id) + "/gate", GateView))

    def live(self, run_id: str) -> LiveView:
        """Series of the newest attempt."""
        return self._connection.ask(Ask("GET", _path("runs", run_id) + "/live", LiveView))

    def comparison(self, run_id: str, baseline_run_id: str, choice: ComparisonChoice) -> Comparison:
        """Two runs side by side; UsageError when they did not measure the same thing, unless forced."""
        chosen = {"device_model": choice.device_model, "variant": choice.variant}
        query: dict[str, str | int | bool] = {
            "baseline": baseline_run_id,
            "arm": choice.arm,
            "force": choice.force,
            **{name: value for name, value in chosen.items() if value is not None},
        }
        path = _path("runs", run_id) + "/comparison"
        return self._connection.ask(Ask("GET", path, Comparison, query=query))

    # --- jobs and attempts

    def job(self, job_id: str) -> JobView:
        """One cell of a run."""
        return self._connection.ask(Ask("GET", _path("jobs", job_id), JobView))

    def explain(self, job_id: str) -> JobExplanation:
        """Why a job waits, device by device."""
        return self._connection.ask(Ask("GET", _path("jobs", job_id) + "/explain", JobExplanation))

    def attempt(self, attempt_id: str) -> AttemptView:
        """One try of a job."""
        return self._connection.ask(Ask("GET", _path("attempts", attempt_id), AttemptView))

    def events_page(self, attempt_id: str, stream: Stream, after_seq: int = 0) -> EventsPage:
        """At most EVENTS_PER_PAGE stored events whose seq is greater than `after_seq`."""
        query: dict[str, str | int | bool] = {
            "stream": stream.value,
            "after_seq": after_seq,
            "limit": EVENTS_PER_PAGE,
        }
        return self._connection.ask(
            Ask("GET", _path("attempts", attempt_id) + "/events", EventsPage, query=query)
        )

    def events(self, attempt_id: str, stream: Stream, after_seq: int = 0) -> Iterator[dict[str, Any]]:
        """All stored events of a stream after `after_seq`, as they were written, page by page."""
        while True:
            page = self.events_page(attempt_id, stream, after_seq)
            yield from page.events
            # A server that does not move on must not be asked for ever.
            if not page.events or page.next_seq - 1 <= after_seq:
                return
            after_seq = page.next_seq - 1

    # --- devices

    def devices(self, query: DevicesQuery | None = None) -> DevicePage:
        """All devices that match, every page in one."""
        asked = query or DevicesQuery()
        found: list[DeviceView] = []
        while True:
            page = self.call(routes.LIST_DEVICES, query=asked)
            found += page.devices
            # A server that does not move on must not be asked for ever.
            if page.next_page_token is None or page.next_page_token == asked.page_token:
                return DevicePage(devices=found)
            asked = asked.model_copy(update={"page_token": page.next_page_token})

    def device(self, device_id: str) -> DeviceView:
        """One device."""
        return self._connection.ask(Ask("GET", _path("devices", device_id), DeviceView))

    def quarantine(self, device_id: str, reason: str) -> DeviceView:
        """Keep work away from a device."""
        return self._act_on(device_id, "quarantine", reason)

    def release(self, device_id: str, reason: str) -> DeviceView:
        """Give a quarantined, reserved or maintained device back to the farm."""
        return self._act_on(device_id, "release", reason)

    def maintain(self, device_id: str, reason: str) -> DeviceView:
        """Take a device out for work on it."""
        return self._act_on(device_id, "maintain", reason)

    def _act_on(self, device_id: str, action: str, reason: str) -> DeviceView:
        path = f"{_path('devices', device_id)}:{action}"
        body = DeviceAction(reason=reason)
        return self._connection.ask(Ask("POST", path, DeviceView, body=body, idempotent=False))

    # --- the rest

    def workloads(self) -> WorkloadList:
        """Workloads that can be named in a run."""
        return self._connection.ask(Ask("GET", "/v1/workloads", WorkloadList))

    def metrics(self) -> MetricList:
        """The metric catalogue."""
        return self._connection.ask(Ask("GET", "/v1/metrics", MetricList))

    def enrollment_token(self, request: EnrollmentTokenRequest) -> NewToken:
        """A new one-time token for one device agent; needs an admin's token."""
        ask = Ask("POST", "/v1/enrollment-tokens", NewToken, body=request, idempotent=False)
        return self._connection.ask(ask)

    def health(self) -> Health:
        """Whether the controller lives."""
        return self._connection.ask(Ask("GET", "/health", Health))

    def ready(self) -> Health:
        """Whether the controller can do its work; InfrastructureError while it cannot."""
        return self._connection.ask(Ask("GET", "/ready", Health))


def _path(collection: str, name: str) -> str:
    """`/v1/<collection>/<name>`; whatever a person typed stays one path segment."""
    return f"/v1/{collection}/{quote(name, safe='')}"
