"""Every route of the controller as data: method, path, body, query and answer.

The controller registers its functions with these, and clients call them, so a path stands nowhere else. Every
route of REST answers JSON, and an error as a problem document (contract/problems.py).
"""

import re
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from typing import Any, Final, Generic, Literal, TypeVar
from urllib.parse import quote

from pydantic import BaseModel

from contract import administration, agent_api, artifacts, rest
from contract.health import Health, HealthQuery
from contract.queries import (
    AuditQuery,
    ComparisonQuery,
    DevicesQuery,
    EventsQuery,
    HistoryQuery,
    RunsQuery,
    TokensQuery,
)

Answer = TypeVar("Answer", covariant=True)
Method = Literal["GET", "POST", "PUT", "DELETE"]

DEVICE_AGENT_PREFIX: Final = "/device-agent/"
"""Below it the token of a device agent counts, everywhere else that of a person."""
DASHBOARD_PREFIX: Final = "/dashboard"
LOGIN_PATH: Final = "/login"
LOGOUT_PATH: Final = "/logout"
OPENAPI_PATH: Final = "/v1/openapi.json"

_PARAMETER: Final = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Upload:
    """A body that is no JSON document: its media type, and how it is compressed."""

    media_type: str
    encoding: str = ""


@dataclass(frozen=True)
class Route(Generic[Answer]):
    """One route. `template` has its parameters in braces; `answer` is None or a model, str for plain text,
    or bytes for a file.

    repeatable: asking twice has the effect of asking once, so that a lost answer may be asked for again. A
    route that `takes_key` is so with the header Idempotency-Key.
    """

    method: Method
    template: str
    answer: type[Answer]
    body: type[BaseModel] | Upload | None = None
    query: type[BaseModel] | None = None
    status: HTTPStatus = HTTPStatus.OK
    may_be_empty: bool = False
    """204 without a body is an answer too: there is nothing."""
    takes_key: bool = False
    repeatable: bool = False

    def __str__(self) -> str:
        return f"{self.method} {self.template}"

    @cached_property
    def parameters(self) -> frozenset[str]:
        """Names in braces."""
        return frozenset(_PARAMETER.findall(self.template))

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        parts = _PARAMETER.split(self.template)
        return re.compile("".join("[^/]+" if i % 2 else re.escape(part) for i, part in enumerate(parts)))

    def path(self, **values: str) -> str:
        """The path with its parameters filled in; whatever a person typed stays one segment.

        TypeError unless exactly the parameters are given, ValueError for an empty one.
        """
        if values.keys() != self.parameters:
            raise TypeError(f"{self} takes {sorted(self.parameters)}, not {sorted(values)}")
        return _PARAMETER.sub(lambda found: _segment(found[1], values[found[1]]), self.template)

    def matches(self, path: str) -> bool:
        """Whether a path is one of this route's."""
        return self._pattern.fullmatch(path) is not None


def _get(template: str, answer: type[Answer], query: type[BaseModel] | None = None) -> Route[Answer]:
    return Route("GET", template, answer, query=query, repeatable=True)


def _decide(action: str, body: type[BaseModel] = administration.DeviceAction) -> Route[rest.DeviceView]:
    return Route("POST", f"/v1/devices/{{device_id}}:{action}", rest.DeviceView, body)


def _segment(name: str, value: str) -> str:
    if not value:
        raise ValueError(f"{name} is empty")
    # A segment of dots only would be taken for a step up.
    return quote(value, safe="") if value.strip(".") else value.replace(".", "%2E")


# --- the service about itself

HEALTH: Final = _get("/health", Health, HealthQuery)
READY: Final = _get("/ready", Health)
SERVICE_METRICS: Final = _get("/metrics", str)

# --- runs

SUBMIT_RUN: Final = Route(
    "POST", "/v1/runs", rest.RunView, rest.RunRequest, status=HTTPStatus.CREATED, takes_key=True
)
LIST_RUNS: Final = _get("/v1/runs", rest.RunPage, RunsQuery)
GET_RUN: Final = _get("/v1/runs/{run_id}", rest.RunView)
GET_REQUEST: Final = _get("/v1/runs/{run_id}/request", rest.RunRequest)
CANCEL_RUN: Final = Route("POST", "/v1/runs/{run_id}:cancel", rest.RunView, repeatable=True)
GET_REPORT: Final = _get("/v1/runs/{run_id}/report", rest.RunReport)
GET_GATE: Final = _get("/v1/runs/{run_id}/gate", rest.GateView)
GET_LIVE: Final = _get("/v1/runs/{run_id}/live", rest.LiveView)
GET_COMPARISON: Final = _get("/v1/runs/{run_id}/comparison", rest.Comparison, ComparisonQuery)
LIST_ARTIFACTS: Final = _get("/v1/runs/{run_id}/artifacts", artifacts.ArtifactList)

# --- jobs and attempts

GET_JOB: Final = _get("/v1/jobs/{job_id}", rest.JobView)
EXPLAIN_JOB: Final = _get("/v1/jobs/{job_id}/explain", rest.JobExplanation)
GET_ATTEMPT: Final = _get("/v1/attempts/{attempt_id}", rest.AttemptView)
GET_EVENTS: Final = _get("/v1/attempts/{attempt_id}/events", rest.EventsPage, EventsQuery)
GET_ARTIFACT: Final = _get("/v1/attempts/{attempt_id}/artifacts/{name}", bytes)

# --- devices

LIST_DEVICES: Final = _get("/v1/devices", rest.DevicePage, DevicesQuery)
GET_DEVICE: Final = _get("/v1/devices/{device_id}", rest.DeviceView)
QUARANTINE_DEVICE: Final = _decide("quarantine")
RELEASE_DEVICE: Final = _decide("release")
MAINTAIN_DEVICE: Final = _decide("maintain")
RESERVE_DEVICE: Final = _decide("reserve", administration.DeviceReservation)
RETIRE_DEVICE: Final = _decide("retire")
GET_HISTORY: Final = _get("/v1/devices/{device_id}/history", administration.DeviceHistory, HistoryQuery)

# --- device agents, as people see them

LIST_DEVICE_AGENTS: Final = _get("/v1/device-agents", administration.DeviceAgentList)
DRAIN_DEVICE_AGENT: Final = Route(
    "POST",
    "/v1/device-agents/{device_agent_id}:drain",
    administration.DeviceAgentView,
    administration.DeviceAction,
)
RESUME_DEVICE_AGENT: Final = Route(
    "POST",
    "/v1/device-agents/{device_agent_id}:resume",
    administration.DeviceAgentView,
    administration.DeviceAction,
)

# --- the catalogue

LIST_WORKLOADS: Final = _get("/v1/workloads", rest.WorkloadList)
LIST_METRICS: Final = _get("/v1/metrics", rest.MetricList)

# --- who may do what, and who did

LIST_AUDIT: Final = _get("/v1/audit", administration.AuditPage, AuditQuery)
LIST_TOKENS: Final = _get("/v1/tokens", administration.TokenPage, TokensQuery)
CREATE_TOKEN: Final = Route(
    "POST",
    "/v1/tokens",
    administration.NewToken,
    administration.UserTokenRequest,
    status=HTTPStatus.CREATED,
)
REVOKE_TOKEN: Final = Route("POST", "/v1/tokens/{token_id}:revoke", administration.TokenView, repeatable=True)
CREATE_ENROLLMENT_TOKEN: Final = Route(
    "POST",
    "/v1/enrollment-tokens",
    administration.NewToken,
    administration.EnrollmentTokenRequest,
    status=HTTPStatus.CREATED,
)

# --- what device agents call

ENROLL: Final = Route("POST", "/device-agent/enroll", agent_api.EnrollAnswer, agent_api.EnrollRequest)
HELLO: Final = Route("POST", "/device-agent/hello", agent_api.HelloAnswer, agent_api.Hello, repeatable=True)
CLAIM: Final = Route[agent_api.Lease | None](
    "POST",
    "/device-agent/claims",
    agent_api.Lease,
    agent_api.ClaimRequest,
    may_be_empty=True,
    repeatable=True,
)
RENEW: Final = Route(
    "POST",
    "/device-agent/leases/{lease_id}:renew",
    agent_api.RenewAnswer,
    agent_api.RenewRequest,
    repeatable=True,
)
POST_EVENTS: Final = Route(
    "POST",
    "/device-agent/attempts/{attempt_id}/events",
    agent_api.EventsAnswer,
    Upload("application/x-ndjson", "gzip"),
    repeatable=True,
)
PUT_ARTIFACT: Final = Route(
    "PUT",
    "/device-agent/attempts/{attempt_id}/artifacts/{name}",
    artifacts.ArtifactRef,
    Upload("application/octet-stream"),
    artifacts.ArtifactUpload,
    repeatable=True,
)
PUT_RESULT: Final = Route(
    "PUT",
    "/device-agent/attempts/{attempt_id}/result",
    agent_api.ResultAnswer,
    agent_api.ResultRequest,
    repeatable=True,
)

ROUTES: Final[tuple[Route[Any], ...]] = tuple(
    value for value in dict(globals()).values() if isinstance(value, Route)
)
"""All of them; tests/controller/api/test_routes.py compares them with the application, both ways."""
