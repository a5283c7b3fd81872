"""A controller's REST surface over real HTTP on a port of its own: canned answers, for one session only."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

from pydantic import BaseModel

from contract.artifacts import ArtifactList, ArtifactView
from contract.failures import Fault
from contract.headers import SESSION_COOKIE
from contract.problems import PROBLEM_MEDIA_TYPE, Problem
from contract.rest import (
    Comparison,
    DevicePage,
    DeviceView,
    LiveView,
    RunPage,
    RunReport,
    RunRequest,
    RunView,
)

SESSION = "a-session-that-is-good"
NEW_RUN = "run_01ARZ3NDEKTSV4RRFFQ69G5FAV"


@dataclass
class FakeFarm:
    """What the surface answers; a test changes it while the server runs. calls: paths as they were asked."""

    devices: list[DeviceView] = field(default_factory=list)
    runs: list[RunView] = field(default_factory=list)
    lives: dict[str, LiveView] = field(default_factory=dict)
    reports: dict[str, RunReport] = field(default_factory=dict)
    artifacts: list[ArtifactView] = field(default_factory=list)
    comparison: Comparison | None = None
    not_comparable: str = ""
    next_page_token: str | None = None
    broken_status: int | None = None
    broken_body: bytes | None = None
    delay_s: float = 0.0
    requests: dict[str, RunRequest] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    """Paths of what was posted from a page of the controller's host."""
    url: str = ""

    def answer(self, target: str, cookies: dict[str, str]) -> tuple[int, BaseModel | bytes]:
        """Status and body of one GET."""
        self.calls.append(target)
        time.sleep(self.delay_s)
        if cookies != {SESSION_COOKIE: SESSION}:
            return _problem(HTTPStatus.UNAUTHORIZED, "not-authenticated", "send a valid token")
        if self.broken_status is not None:
            return _problem(self.broken_status, "internal", "something broke; read the log")
        if self.broken_body is not None:
            return HTTPStatus.OK, self.broken_body
        parts = urlsplit(target)
        found = self._found(parts.path, dict(parse_qsl(parts.query)))
        if isinstance(found, tuple):
            return found
        if found is None:
            return _problem(HTTPStatus.NOT_FOUND, "not-found", f"nothing is at {parts.path}")
        return HTTPStatus.OK, found

    def change(
        self, target: str, cookies: dict[str, str], origin: str | None
    ) -> tuple[int, BaseModel | bytes]:
        """Status and body of one POST: it counts from a page of this host only."""
        if origin != self.url:
            return _problem(HTTPStatus.UNAUTHORIZED, "not-authenticated", "sent from another site")
        if target == "/v1/runs":
            self.runs = [self.runs[0].model_copy(update={"run_id": NEW_RUN}), *self.runs]
            status, found = self.answer(f"/v1/runs/{NEW_RUN}", cookies)
        else:
            status, found = self.answer(target.removesuffix(":cancel"), cookies)
        if status == HTTPStatus.OK:
            self.changes.append(target)
        return HTTPStatus.CREATED if status == HTTPStatus.OK and target == "/v1/runs" else status, found

    def _found(self, path: str, query: dict[str, str]) -> BaseModel | tuple[int, BaseModel | bytes] | None:
        match path.strip("/").split("/"):
            case ["v1", "devices"]:
                return DevicePage(devices=self.devices)
            case ["v1", "devices", device_id]:
                return next((found for found in self.devices if found.device_id == device_id), None)
            case ["v1", "runs"]:
                return RunPage(runs=self.runs, next_page_token=self.next_page_token)
            case ["v1", "runs", run_id]:
                return next((run for run in self.runs if run.run_id == run_id), None)
            case ["v1", "runs", run_id, "live" | "report" | "request" as what]:
                kept = {"live": self.lives, "report": self.reports, "request": self.requests}
                return kept[what].get(run_id)
            case ["v1", "runs", run_id, "artifacts"]:
                return ArtifactList(run_id=run_id, artifacts=self.artifacts)
            case ["v1", "runs", _, "comparison"]:
                if self.not_comparable and query.get("force") != "true":
                    return _problem(HTTPStatus.CONFLICT, "not-comparable", self.not_comparable)
                return self.comparison
        return None


def _problem(status: int, code: str, detail: str) -> tuple[int, BaseModel]:
    return status, Problem(
        type=f"urn:dynofarm:problem:{code}",
        title=code.replace("-", " "),
        status=status,
        detail=detail,
        code=code,
        fault=Fault.JOB,
        retryable=False,
    )


class _Handler(BaseHTTPRequestHandler):
    farm: FakeFarm

    def do_GET(self) -> None:
        self._send(*self.farm.answer(self.path, self._cookies()))

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._send(*self.farm.change(self.path, self._cookies(), self.headers.get("Origin")))

    def _cookies(self) -> dict[str, str]:
        return {name: morsel.value for name, morsel in SimpleCookie(self.headers.get("Cookie")).items()}

    def _send(self, status: int, found: BaseModel | bytes) -> None:
        body = found if isinstance(found, bytes) else found.model_dump_json().encode()
        is_problem = isinstance(found, Problem)
        self.send_response(status)
        self.send_header("Content-Type", PROBLEM_MEDIA_TYPE if is_problem else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        # A browser that leaves a page takes back what it asked for.
        with suppress(BrokenPipeError, ConnectionResetError):
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet: a failing test shows `FakeFarm.calls`."""


@contextmanager
def serving(farm: FakeFarm) -> Iterator[str]:
    """The surface's address while the block runs."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"farm": farm}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    farm.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield farm.url
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)
