"""A small honest controller: leases, fences, gap-free streams and results as the real one keeps them.

`handle` is the whole of it; httpx.MockTransport and a real server on a free port both call it. Faults are
set by tests: `faults` decides per request whether it is lost, its answer is lost, or it is refused.
"""

import gzip
import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import parse_qsl

from pydantic import BaseModel
from ulid import ULID

from contract.agent_api import (
    ClaimRequest,
    DeviceStanding,
    EnrollAnswer,
    EnrollRequest,
    EventBatchHeader,
    EventsAnswer,
    Hello,
    HelloAnswer,
    Lease,
    RenewAnswer,
    RenewRequest,
    ResultAnswer,
    ResultRequest,
)
from contract.artifacts import ArtifactRef, ArtifactUpload
from contract.events import STREAMS_OF_TYPE, Event, StreamOpened, parse_event
from contract.events.envelope import Stream
from contract.failures import Fault
from contract.jobs import AttemptSpec
from contract.problems import PROBLEM_MEDIA_TYPE, PROBLEM_TYPE_PREFIX, Problem
from contract.states import DeviceState

Fault_ = Literal["", "lose_request", "lose_answer", "unavailable"]
MAX_BATCH_BYTES = 1 << 20


@dataclass
class Answer:
    """What goes back."""

    status: int
    body: bytes = b""
    media_type: str = "application/json"


class ProblemAnswerError(Exception):
    """Becomes a problem document."""

    def __init__(self, status: int, code: str, **fields: Any) -> None:
        super().__init__(code)
        self.answer = Answer(
            status,
            Problem(
                type=PROBLEM_TYPE_PREFIX + code,
                title=code,
                status=status,
                detail=f"{code} by the fake controller",
                code=code,
                fault=Fault.LAB,
                retryable=False,
                **fields,
            )
            .model_dump_json()
            .encode(),
            PROBLEM_MEDIA_TYPE,
        )


@dataclass
class Attempt:
    """One attempt as the controller knows it. streams: the raw lines, line i has seq i + 1."""

    lease: Lease
    expires_s: float
    streams: dict[Stream, list[bytes]] = field(default_factory=dict)
    result: ResultRequest | None = None
    state: str = "leased"
    phases: list[str] = field(default_factory=list)
    renewals: int = 0
    artifacts: dict[str, bytes] = field(default_factory=dict)

    def events(self, stream: Stream) -> list[Event]:
        return [parse_event(line) for line in self.streams.get(stream, [])]


class FakeController:
    """Times are small, so that tests are quick; `directive` and `drain` are set by tests."""

    def __init__(self, *, ttl_s: float = 6.0, renew_interval_s: float = 0.5, margin_s: float = 1.0) -> None:
        self.ttl_s = ttl_s
        self.renew_interval_s = renew_interval_s
        self.margin_s = margin_s
        self.lock = threading.Condition()
        self.refused_artifacts: set[str] = set()
        self.enrollment_tokens = {"one-time"}
        self.tokens: set[str] = set()
        self.queue: list[AttemptSpec] = []
        self.claims: dict[str, Lease | None] = {}
        self.claim_requests = 0
        self.attempts: dict[str, Attempt] = {}
        self.fences: dict[str, int] = {}
        self.hellos: list[Hello] = []
        self.cancel: set[str] = set()
        self.abandon: set[str] = set()
        self.revoked: set[str] = set()
        self.drain = False
        self.only_for: dict[str, str] = {}
        """Attempts that only one device may have."""
        self.hello_interval_s = 0.5
        self.claim_wait_s = 0.3
        self.renewal_answer_delay_s = 0.0
        self.faults: Callable[[str, str], Fault_] = lambda method, path: ""
        self.requests: list[tuple[str, str]] = []

    # What tests do

    def submit(self, spec: AttemptSpec, device_id: str | None = None) -> AttemptSpec:
        with self.lock:
            if device_id is not None:
                self.only_for[spec.attempt_id] = device_id
            self.queue.append(spec)
            self.lock.notify_all()
        return spec

    def wait(self, condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
        """Until the condition holds; AssertionError after timeout_s."""
        end_s = time.monotonic() + timeout_s
        while time.monotonic() < end_s:
            with self.lock:
                if condition():
                    return
            time.sleep(0.02)
        raise AssertionError("the condition did not come true in time")

    def result_of(self, spec: AttemptSpec, timeout_s: float = 30.0) -> ResultRequest:
        def there() -> bool:
            return spec.attempt_id in self.attempts and self.attempts[spec.attempt_id].result is not None

        self.wait(there, timeout_s)
        result = self.attempts[spec.attempt_id].result
        assert result is not None
        return result

    def restore_from_backup(self, attempt_id: str, stream: Stream, keep: int) -> None:
        """Forget what was acknowledged."""
        with self.lock:
            del self.attempts[attempt_id].streams[stream][keep:]

    # What agents see

    def handle(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer | None:
        """The answer; None: it gets lost."""
        with self.lock:
            self.requests.append((method, path))
            fault = self.faults(method, path)
        if fault == "lose_request":
            return None
        if fault == "unavailable":
            return Answer(503, b"<html>proxy</html>", "text/html")
        try:
            answer = self._route(method, path, headers, body)
        except ProblemAnswerError as problem:
            answer = problem.answer
        if path.endswith(":renew"):
            time.sleep(self.renewal_answer_delay_s)
        return None if fault == "lose_answer" else answer

    def _route(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        token = headers.get("authorization", "").removeprefix("Bearer ")
        if path == "/device-agent/enroll":
            return self._enroll(token, EnrollRequest.model_validate_json(body))
        if token not in self.tokens:
            raise ProblemAnswerError(401, "not-authenticated")
        if path == "/device-agent/hello":
            return self._hello(Hello.model_validate_json(body))
        if path == "/device-agent/claims":
            return self._claim(ClaimRequest.model_validate_json(body))
        parts = path.split("/")
        if parts[2] == "leases":
            lease_id = parts[3].removesuffix(":renew")
            return self._renew(lease_id, RenewRequest.model_validate_json(body))
        attempt = self.attempts.get(parts[3])
        if attempt is None:
            raise ProblemAnswerError(404, "attempt-not-found")
        if "artifacts" in parts:
            return self._artifact(attempt, path, body)
        if method == "PUT":
            return self._result(attempt, ResultRequest.model_validate_json(body))
        return self._events(attempt, gzip.decompress(body))

    def _enroll(self, token: str, body: EnrollRequest) -> Answer:
        with self.lock:
            if token not in self.enrollment_tokens:
                raise ProblemAnswerError(401, "not-authenticated")
            self.enrollment_tokens.remove(token)
            own = f"dyn_{ULID()}"
            self.tokens.add(own)
        return _json(EnrollAnswer(device_agent_id=f"agt_{ULID()}", token=own))

    def _hello(self, hello: Hello) -> Answer:
        with self.lock:
            self.hellos.append(hello)
            live = {a.lease.lease_id for a in self.attempts.values() if self._live(a)} - self.abandon
        held = [lease.lease_id for lease in hello.leases]
        return _json(
            HelloAnswer(
                hello_interval_s=self.hello_interval_s,
                claim_wait_s=self.claim_wait_s,
                continue_leases=[lease_id for lease_id in held if lease_id in live],
                abandon_leases=[lease_id for lease_id in held if lease_id not in live],
                devices=[
                    DeviceStanding(device_id=d.device_id, state=DeviceState.READY) for d in hello.devices
                ],
                drain=self.drain,
            )
        )

    def _claim(self, request: ClaimRequest) -> Answer:
        end_s = time.monotonic() + request.wait_s
        with self.lock:
            self.claim_requests += 1
            while request.claim_id not in self.claims:
                free = [d for d in request.devices if not self._device_busy(d)]
                fitting = [
                    s for s in self.queue if self.only_for.get(s.attempt_id, free[:1]) in (*free, free[:1])
                ]
                if fitting and free:
                    self.queue.remove(fitting[0])
                    self.claims[request.claim_id] = self._grant(free[0], fitting[0])
                elif time.monotonic() >= end_s:
                    self.claims[request.claim_id] = None
                else:
                    self.lock.wait(0.02)
            lease = self.claims[request.claim_id]
        return Answer(204) if lease is None else _json(lease)

    def _device_busy(self, device_id: str) -> bool:
        return any(a.lease.device_id == device_id and self._live(a) for a in self.attempts.values())

    def _live(self, attempt: Attempt) -> bool:
        return attempt.result is None and time.monotonic() < attempt.expires_s

    def _grant(self, device_id: str, spec: AttemptSpec) -> Lease:
        self.fences[device_id] = self.fences.get(device_id, 0) + 1
        lease = Lease(
            lease_id=f"lea_{ULID()}",
            attempt_id=spec.attempt_id,
            device_id=device_id,
            fence=self.fences[device_id],
            ttl_s=self.ttl_s,
            renew_interval_s=self.renew_interval_s,
            margin_s=self.margin_s,
            spec=spec,
        )
        self.attempts[spec.attempt_id] = Attempt(lease, time.monotonic() + self.ttl_s)
        return lease

    def _renew(self, lease_id: str, request: RenewRequest) -> Answer:
        with self.lock:
            found = [a for a in self.attempts.values() if a.lease.lease_id == lease_id]
            if not found or not self._live(found[0]) or lease_id in self.revoked:
                raise ProblemAnswerError(410, "lease-gone")
            attempt = found[0]
            if request.fence != self.fences[attempt.lease.device_id]:
                raise ProblemAnswerError(409, "fenced")
            attempt.expires_s = time.monotonic() + self.ttl_s
            attempt.state = request.phase
            attempt.phases.append(request.phase)
            attempt.renewals += 1
        return _json(
            RenewAnswer(
                ttl_s=self.ttl_s,
                renew_interval_s=self.renew_interval_s,
                margin_s=self.margin_s,
                directive=self._directive(attempt),
            )
        )

    def _directive(self, attempt: Attempt) -> Literal["continue", "cancel"]:
        return "cancel" if attempt.lease.attempt_id in self.cancel else "continue"

    def _events(self, attempt: Attempt, text: bytes) -> Answer:
        if len(text) > MAX_BATCH_BYTES:
            raise ProblemAnswerError(413, "payload-too-large")
        head, *lines = text.rstrip(b"\n").split(b"\n")
        header = EventBatchHeader.model_validate_json(head)
        if header.count != len(lines):
            raise ProblemAnswerError(422, "validation")
        with self.lock:
            stored = attempt.streams.setdefault(header.stream, [])
            if header.first_seq > len(stored) + 1:
                raise ProblemAnswerError(
                    409, "events-gap", next_seq=len(stored) + 1, stream=header.stream.value
                )
            for offset, line in enumerate(lines):
                seq = header.first_seq + offset
                _check_event(attempt, header.stream, seq, line)
                if seq <= len(stored):
                    if stored[seq - 1] != line:
                        raise ProblemAnswerError(422, "seq-conflict")
                else:
                    stored.append(line)
            answer = EventsAnswer(
                next_seq=len(stored) + 1, min_interval_s=0.0, directive=self._directive(attempt)
            )
        return _json(answer)

    def _artifact(self, attempt: Attempt, path: str, body: bytes) -> Answer:
        place, _, query = path.partition("?")
        name = place.rpartition("/")[2]
        about = ArtifactUpload.model_validate(dict(parse_qsl(query)))
        if about.fence != attempt.lease.fence:
            raise ProblemAnswerError(409, "fenced")
        if name in self.refused_artifacts or about.sha256 != hashlib.sha256(body).hexdigest():
            raise ProblemAnswerError(422, "validation")
        with self.lock:
            attempt.artifacts[name] = body
        return _json(ArtifactRef(name=name, sha256=about.sha256, size_bytes=len(body)))

    def _result(self, attempt: Attempt, result: ResultRequest) -> Answer:
        with self.lock:
            if result.fence != attempt.lease.fence:
                raise ProblemAnswerError(409, "fenced")
            for stream, last_seq in result.last_seq.items():
                stored = len(attempt.streams.get(stream, []))
                if stored < last_seq:
                    raise ProblemAnswerError(409, "events-missing", next_seq=stored + 1, stream=stream.value)
            if any(ref.name not in attempt.artifacts for ref in result.artifacts):
                raise ProblemAnswerError(409, "artifacts-missing")
            late = not self._live(attempt) and attempt.result is None
            attempt.result = result
            attempt.state = result.outcome
            self.lock.notify_all()
        return _json(ResultAnswer(attempt_id=attempt.lease.attempt_id, state=result.outcome, salvaged=late))


def _check_event(attempt: Attempt, stream: Stream, seq: int, line: bytes) -> None:
    event = parse_event(line)
    wrong = event.seq != seq or stream not in STREAMS_OF_TYPE[event.type]
    if wrong or (seq == 1) != isinstance(event, StreamOpened):
        raise ProblemAnswerError(422, "validation")
    if isinstance(event, StreamOpened) and event.attempt_id != attempt.lease.attempt_id:
        raise ProblemAnswerError(422, "validation")


def _json(body: BaseModel) -> Answer:
    return Answer(200, body.model_dump_json().encode())
