"""The typed client: `call` takes any route of the contract; what commands ask often has a method."""

from collections.abc import Iterator
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from pydantic import BaseModel, SecretStr

from client.refusals import built, client_error_of
from contract import routes
from contract.administration import DeviceAction, EnrollmentTokenRequest, NewToken
from contract.events import Stream
from contract.health import Health
from contract.queries import ComparisonQuery, DevicesQuery, EventsQuery, RunsQuery
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
from rest.errors import RestError
from rest.transport import Ask, Caller, Network, Transport

Answer = TypeVar("Answer")

EVENTS_PER_PAGE: Final = 1000


class DynofarmClient:
    """Speaks to one controller. Every method raises a ClientError, and nothing else, when it fails."""

    def __init__(
        self,
        url: str,
        token: SecretStr,
        caller: Caller | None = None,
        transport: Network | None = None,
    ) -> None:
        """`url` such as http://127.0.0.1:8000; `transport` replaces the network in tests."""
        try:
            self._transport = Transport(url, caller, transport)
            self._transport.authorise(token)
        except RestError as error:
            raise client_error_of(error) from error
        self.url = self._transport.address.url

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._transport.__exit__(kind, error, trace)

    def wait_up_to(self, give_up_after_s: float) -> None:
        """From now on, a controller that is away is waited for as long as this."""
        self._transport.patience = replace(self._transport.patience, give_up_after_s=give_up_after_s)

    def call(
        self,
        route: routes.Route[Answer],
        body: BaseModel | None = None,
        query: BaseModel | None = None,
        **names: str,
    ) -> Answer:
        """The answer of any route; `names` are the parameters of its path."""
        return self._ask(Ask(route, names, body, query))

    def _ask(self, ask: Ask[Answer]) -> Answer:
        try:
            return self._transport.ask(ask)
        except RestError as error:
            raise client_error_of(error) from error

    # --- runs

    def submit(self, request: RunRequest, idempotency_key: str = "") -> RunView:
        """The new run. One key for all tries, so a lost answer never makes a second run."""
        return self._ask(Ask(routes.SUBMIT_RUN, body=request, key=idempotency_key))

    def runs(self, page_token: str = "", limit: int = 50) -> RunPage:
        """Runs, newest first, from where `page_token` says."""
        return self.call(routes.LIST_RUNS, query=RunsQuery(limit=limit, page_token=page_token or None))

    def run(self, run_id: str) -> RunView:
        """A run with its jobs and attempts."""
        return self.call(routes.GET_RUN, run_id=run_id)

    def request_of(self, run_id: str) -> RunRequest:
        """What was submitted, with every default filled in."""
        return self.call(routes.GET_REQUEST, run_id=run_id)

    def cancel(self, run_id: str) -> RunView:
        """Asks that the run end; a run that has ended stays as it is."""
        return self.call(routes.CANCEL_RUN, run_id=run_id)

    def report(self, run_id: str) -> RunReport:
        """Results so far."""
        return self.call(routes.GET_REPORT, run_id=run_id)

    def gate(self, run_id: str) -> GateView:
        """The verdict; InconclusiveError while the run goes on."""
        return self.call(routes.GET_GATE, run_id=run_id)

    def live(self, run_id: str) -> LiveView:
        """Series of the newest attempt."""
        return self.call(routes.GET_LIVE, run_id=run_id)

    def comparison(self, run_id: str, choice: ComparisonQuery) -> Comparison:
        """Two runs side by side; UsageError when they did not measure the same thing, unless forced."""
        return self.call(routes.GET_COMPARISON, query=choice, run_id=run_id)

    # --- jobs and attempts

    def job(self, job_id: str) -> JobView:
        return self.call(routes.GET_JOB, job_id=job_id)

    def explain(self, job_id: str) -> JobExplanation:
        """Why a job waits, device by device."""
        return self.call(routes.EXPLAIN_JOB, job_id=job_id)

    def attempt(self, attempt_id: str) -> AttemptView:
        return self.call(routes.GET_ATTEMPT, attempt_id=attempt_id)

    def events_page(self, attempt_id: str, stream: Stream, after_seq: int = 0) -> EventsPage:
        """At most EVENTS_PER_PAGE stored events whose seq is greater than `after_seq`."""
        query = EventsQuery(stream=stream, after_seq=after_seq, limit=EVENTS_PER_PAGE)
        return self.call(routes.GET_EVENTS, query=query, attempt_id=attempt_id)

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
        return self.call(routes.GET_DEVICE, device_id=device_id)

    def quarantine(self, device_id: str, reason: str) -> DeviceView:
        """Keep work away from a device."""
        return self.call(routes.QUARANTINE_DEVICE, built(DeviceAction, reason=reason), device_id=device_id)

    def release(self, device_id: str, reason: str) -> DeviceView:
        """Give a quarantined, reserved or maintained device back to the farm."""
        return self.call(routes.RELEASE_DEVICE, built(DeviceAction, reason=reason), device_id=device_id)

    def maintain(self, device_id: str, reason: str) -> DeviceView:
        """Take a device out for work on it."""
        return self.call(routes.MAINTAIN_DEVICE, built(DeviceAction, reason=reason), device_id=device_id)

    # --- the rest

    def workloads(self) -> WorkloadList:
        """Workloads that can be named in a run."""
        return self.call(routes.LIST_WORKLOADS)

    def metrics(self) -> MetricList:
        return self.call(routes.LIST_METRICS)

    def enrollment_token(self, request: EnrollmentTokenRequest) -> NewToken:
        """A new one-time token for one device agent; needs an admin's token."""
        return self.call(routes.CREATE_ENROLLMENT_TOKEN, request)

    def health(self) -> Health:
        """Whether the controller lives."""
        return self.call(routes.HEALTH)

    def ready(self) -> Health:
        """Whether the controller can do its work; InfrastructureError while it cannot."""
        return self.call(routes.READY)
