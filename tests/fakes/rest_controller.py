"""A controller at the wire: the public routes over real HTTP, small and honest. Runs follow a Script."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from pydantic import BaseModel, ValidationError

from contract.administration import DeviceAction, EnrollmentTokenRequest, NewToken
from contract.events import Stream
from contract.health import Health, proof_of
from contract.metrics import METRICS
from contract.problems import PROBLEMS, FieldProblem, Problem, ProblemCode
from contract.rest import (
    Comparison,
    DevicePage,
    DeviceView,
    EventsPage,
    JobExplanation,
    MetricList,
    RunPage,
    RunRequest,
    WorkloadList,
)
from contract.states import DeviceState, TargetKind
from tests.fakes.scripted_run import AGENT_ID, DEVICE_ID, Script, ScriptedRun
from workloads import WorkloadError, catalogue, compile_request

TOKEN = "dyn_" + "t" * 43
ENROLLMENT_TOKEN = "dyn_" + "e" * 43
MODEL = "smollm2-135m-instruct"
_NOW = datetime(2026, 1, 1, tzinfo=UTC)

Body = TypeVar("Body", bound=BaseModel)


class ProblemError(Exception):
    """Ends a request with a problem document."""

    def __init__(self, code: ProblemCode, detail: str, *errors: FieldProblem) -> None:
        super().__init__(detail)
        self.problem = Problem(
            type=f"urn:dynofarm:problem:{code}",
            title=code.replace("-", " ").capitalize(),
            status=PROBLEMS[code].status,
            detail=detail,
            code=code,
            fault=PROBLEMS[code].fault,
            retryable=PROBLEMS[code].retryable,
            errors=list(errors),
            trace_id="trace-1",
        )


@dataclass(frozen=True)
class Asked:
    """A request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass
class RestController:
    """script: how the next runs go. refusals: statuses that the next requests get before anything is done.
    lost_answers: so many requests are carried out and never answered."""

    script: Script = field(default_factory=Script)
    devices: dict[str, DeviceView] = field(default_factory=lambda: {DEVICE_ID: host_device()})
    runs: dict[str, ScriptedRun] = field(default_factory=dict)
    refusals: list[int] = field(default_factory=list)
    lost_answers: int = 0
    knows_token: bool = True
    asked: list[Asked] = field(default_factory=list)
    on_submit: Callable[[ScriptedRun], None] = lambda run: None
    url: str = ""
    _keys: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @contextmanager
    def served(self) -> Iterator[str]:
        """Its address while it listens."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield self.url
        finally:
            server.shutdown()
            server.server_close()
            thread.join(10)

    def add_run(self, request: RunRequest) -> ScriptedRun:
        """A run as if it had been submitted."""
        run = ScriptedRun(len(self.runs) + 1, request, self.script, self.url)
        self.runs[run.run_id] = run
        self.on_submit(run)
        return run

    def answer(self, asked: Asked) -> tuple[int, BaseModel]:
        """Status and body; ProblemError for everything else."""
        with self._lock:
            self.asked.append(asked)
            if self.refusals:
                self.refusals.pop(0)
                raise ProblemError(ProblemCode.STORE_BUSY, "the store is busy; try again")
            if asked.path in ("/health", "/ready"):
                return 200, self._health(asked.query.get("challenge", ""))
            if asked.headers.get("authorization") != f"Bearer {TOKEN}":
                raise ProblemError(ProblemCode.NOT_AUTHENTICATED, "this needs a valid token")
            for method, pattern, route in _ROUTES:
                match = re.fullmatch(pattern, asked.path)
                if match and method == asked.method:
                    return route(self, asked, *(unquote(group) for group in match.groups()))
        raise ProblemError(ProblemCode.NOT_FOUND, "there is nothing at this address")

    def _health(self, challenge: str) -> Health:
        port = urlsplit(self.url).port or 0
        proof = proof_of(TOKEN, port, challenge) if challenge and self.knows_token else ""
        return Health(status="ok", version="0", contract_version="1.0", checks={}, proof=proof)

    # --- routes

    def submit(self, asked: Asked) -> tuple[int, BaseModel]:
        request = _body(RunRequest, asked)
        key = asked.headers.get("idempotency-key", "")
        if key in self._keys:
            body, run_id = self._keys[key]
            if body != asked.body:
                raise ProblemError(
                    ProblemCode.IDEMPOTENCY_KEY_REUSED, f"Idempotency-Key {key!r} was already used"
                )
            return 201, self.runs[run_id].view()
        try:
            compile_request(request.workload)
        except WorkloadError as error:
            raise _wrong("/workload", str(error)) from error
        self._require_device(request)
        run = self.add_run(request)
        if key:
            self._keys[key] = (asked.body, run.run_id)
        return 201, run.view()

    def _require_device(self, request: RunRequest) -> None:
        for position, selector in enumerate(request.selectors):
            fits = any(selector.device_id in (None, device.device_id) for device in self.devices.values())
            if not fits and not request.wait_for_capacity:
                wrong = FieldProblem(pointer=f"/selectors/{position}", detail="no device matches")
                raise ProblemError(ProblemCode.SELECTOR_UNSATISFIABLE, "no device matches", wrong)

    def page(self, asked: Asked) -> tuple[int, BaseModel]:
        newest_first = sorted(self.runs.values(), key=lambda run: run.run_id, reverse=True)
        after, limit = asked.query.get("page_token", "~"), int(asked.query.get("limit", "50"))
        rest = [run for run in newest_first if run.run_id < after]
        token = rest[limit - 1].run_id if len(rest) > limit else None
        return 200, RunPage(runs=[run.view() for run in rest[:limit]], next_page_token=token)

    def run(self, run_id: str) -> ScriptedRun:
        if run_id not in self.runs:
            raise ProblemError(ProblemCode.RUN_NOT_FOUND, f"no run is named {run_id}")
        return self.runs[run_id]

    def get_run(self, _asked: Asked, run_id: str) -> tuple[int, BaseModel]:
        run = self.run(run_id)
        run.look()
        return 200, run.view()

    def request_of(self, _asked: Asked, run_id: str) -> tuple[int, BaseModel]:
        return 200, self.run(run_id).request

    def cancel(self, _asked: Asked, run_id: str) -> tuple[int, BaseModel]:
        run = self.run(run_id)
        run.cancelled |= run.outcome is None
        return 200, run.view()

    def report(self, _asked: Asked, run_id: str) -> tuple[int, BaseModel]:
        return 200, self.run(run_id).report()

    def gate(self, _asked: Asked, run_id: str) -> tuple[int, BaseModel]:
        run = self.run(run_id)
        if run.outcome is None:
            raise ProblemError(ProblemCode.RESULT_NOT_READY, "it is not completed, so it has no gate yet")
        return 200, run.gate()

    def live(self, _asked: Asked, run_id: str) -> tuple[int, BaseModel]:
        return 200, self.run(run_id).live()

    def comparison(self, asked: Asked, run_id: str) -> tuple[int, BaseModel]:
        run, baseline = self.run(run_id), self.run(asked.query["baseline"])
        arm, forced = asked.query["arm"], asked.query["force"] == "true"
        if run.request.model != baseline.request.model and not forced:
            raise ProblemError(ProblemCode.NOT_COMPARABLE, "these runs are not of the same thing (model)")
        before, after = (each.report().devices[0].arms[arm].metrics for each in (baseline, run))
        change = (after["wall_s"].median / before["wall_s"].median - 1.0) * 100.0
        return 200, Comparison(
            run_id=run_id,
            baseline_run_id=baseline.run_id,
            arm=arm,
            differs=["model: a and b"] if forced else [],
            metrics={"wall_s": (before["wall_s"], after["wall_s"])},
            change_percent={"wall_s": change},
            note="Medians of two runs; this is not a verdict.",
        )

    def job(self, _asked: Asked, job_id: str) -> tuple[int, BaseModel]:
        return 200, self._of_job(job_id).job()

    def explain(self, _asked: Asked, job_id: str) -> tuple[int, BaseModel]:
        job = self._of_job(job_id).job()
        return 200, JobExplanation(
            job_id=job_id, state=job.state, waiting_reason=job.waiting_reason, devices=[]
        )

    def _of_job(self, job_id: str) -> ScriptedRun:
        found = [run for run in self.runs.values() if run.job_id == job_id]
        if not found:
            raise ProblemError(ProblemCode.JOB_NOT_FOUND, f"no job is named {job_id}")
        return found[0]

    def _of_attempt(self, attempt_id: str) -> ScriptedRun:
        found = [run for run in self.runs.values() if run.attempt_id == attempt_id]
        if not found:
            raise ProblemError(ProblemCode.ATTEMPT_NOT_FOUND, f"no attempt is named {attempt_id}")
        return found[0]

    def attempt(self, _asked: Asked, attempt_id: str) -> tuple[int, BaseModel]:
        return 200, self._of_attempt(attempt_id).attempt()

    def events(self, asked: Asked, attempt_id: str) -> tuple[int, BaseModel]:
        stream, after = Stream(asked.query["stream"]), int(asked.query["after_seq"])
        stored = [event for event in self._of_attempt(attempt_id).events(stream) if event.seq > after]
        events = [event.model_dump(mode="json") for event in stored[: int(asked.query["limit"])]]
        next_seq = events[-1]["seq"] + 1 if events else after + 1
        return 200, EventsPage(stream=stream, events=events, next_seq=next_seq)

    def list_devices(self, _asked: Asked) -> tuple[int, BaseModel]:
        return 200, DevicePage(devices=list(self.devices.values()))

    def device(self, _asked: Asked, device_id: str) -> tuple[int, BaseModel]:
        if device_id not in self.devices:
            raise ProblemError(ProblemCode.DEVICE_NOT_FOUND, f"no device is named {device_id}")
        return 200, self.devices[device_id]

    def act_on(self, asked: Asked, device_id: str, action: str) -> tuple[int, BaseModel]:
        self.device(asked, device_id)
        wanted = {
            "quarantine": DeviceState.QUARANTINED,
            "release": DeviceState.CHECKING,
            "maintain": DeviceState.MAINTENANCE,
        }[action]
        reason = _body(DeviceAction, asked).reason
        device = self.devices[device_id].model_copy(update={"state": wanted, "reasons": [reason]})
        self.devices[device_id] = device
        return 200, device

    def workloads(self, _asked: Asked) -> tuple[int, BaseModel]:
        return 200, WorkloadList(workloads=catalogue())

    def metrics(self, _asked: Asked) -> tuple[int, BaseModel]:
        return 200, MetricList(metrics=list(METRICS.values()))

    def enrollment_token(self, asked: Asked) -> tuple[int, BaseModel]:
        _body(EnrollmentTokenRequest, asked)
        return 201, NewToken(token_id="0" * 16, token=ENROLLMENT_TOKEN, expires_at=_NOW)


_NAME = "([^/:]+)"
_ROUTES: tuple[tuple[str, str, Callable[..., tuple[int, BaseModel]]], ...] = (
    ("POST", "/v1/runs", RestController.submit),
    ("GET", "/v1/runs", RestController.page),
    ("GET", f"/v1/runs/{_NAME}", RestController.get_run),
    ("GET", f"/v1/runs/{_NAME}/request", RestController.request_of),
    ("POST", f"/v1/runs/{_NAME}:cancel", RestController.cancel),
    ("GET", f"/v1/runs/{_NAME}/report", RestController.report),
    ("GET", f"/v1/runs/{_NAME}/gate", RestController.gate),
    ("GET", f"/v1/runs/{_NAME}/live", RestController.live),
    ("GET", f"/v1/runs/{_NAME}/comparison", RestController.comparison),
    ("GET", f"/v1/jobs/{_NAME}", RestController.job),
    ("GET", f"/v1/jobs/{_NAME}/explain", RestController.explain),
    ("GET", f"/v1/attempts/{_NAME}", RestController.attempt),
    ("GET", f"/v1/attempts/{_NAME}/events", RestController.events),
    ("GET", "/v1/devices", RestController.list_devices),
    ("GET", f"/v1/devices/{_NAME}", RestController.device),
    ("POST", f"/v1/devices/{_NAME}:(quarantine|release|maintain)", RestController.act_on),
    ("GET", "/v1/workloads", RestController.workloads),
    ("GET", "/v1/metrics", RestController.metrics),
    ("POST", "/v1/enrollment-tokens", RestController.enrollment_token),
)


def host_device(**changed: Any) -> DeviceView:
    """A ready host with the demo's model."""
    view = DeviceView(
        device_id=DEVICE_ID,
        device_agent_id=AGENT_ID,
        kind=TargetKind.HOST,
        state=DeviceState.READY,
        reasons=[],
        device_model="testhost",
        os_name="linux",
        os_version="6.1",
        os_build="",
        memory_bytes=8_000_000_000,
        virtual=False,
        models=[MODEL],
        labels={},
        fence=1,
        attempt_id=None,
        last_seen_at=_NOW,
        state_since=_NOW,
    )
    return view.model_copy(update=changed)


def _wrong(pointer: str, detail: str) -> ProblemError:
    return ProblemError(
        ProblemCode.VALIDATION, f"{pointer}: {detail}", FieldProblem(pointer=pointer, detail=detail)
    )


def _body(kind: type[Body], asked: Asked) -> Body:
    try:
        return kind.model_validate_json(asked.body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise _wrong("".join(f"/{part}" for part in first["loc"]), first["msg"]) from error


def _handler(controller: RestController) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._serve()

        def do_POST(self) -> None:
            self._serve()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name that http.server gives
            """Nothing: tests read standard error."""

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers.get("content-length", "0")))
            asked = Asked(self.command, parts.path, query, headers, body)
            try:
                status, answer = controller.answer(asked)
                media_type = "application/json"
            except ProblemError as error:
                status, answer, media_type = error.problem.status, error.problem, "application/problem+json"
            if controller.lost_answers:
                controller.lost_answers -= 1
                return
            content = json.dumps(
                answer.model_dump(mode="json", exclude_none=isinstance(answer, Problem))
            ).encode()
            self.send_response(status)
            self.send_header("Content-Type", media_type)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    return Handler
