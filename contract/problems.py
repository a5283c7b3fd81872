"""Problem documents (RFC 9457), the one shape of every error over HTTP; and the codes that they may have.

PROBLEMS is the one table of what a code means: its HTTP status, who must act, and whether the same request
may succeed later.
"""

from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from types import MappingProxyType
from typing import Final

from contract.failures import Fault
from contract.model import ContractModel

PROBLEM_MEDIA_TYPE = "application/problem+json"
PROBLEM_TYPE_PREFIX = "urn:dynofarm:problem:"


class ProblemCode(StrEnum):
    """Stable: never renamed, only added to."""

    # Who asks.
    NOT_AUTHENTICATED = "not-authenticated"
    FORBIDDEN = "forbidden"
    HOST_REFUSED = "host-refused"
    # What is asked.
    BAD_REQUEST = "bad-request"
    METHOD_NOT_ALLOWED = "method-not-allowed"
    NOT_FOUND = "not-found"
    RUN_NOT_FOUND = "run-not-found"
    JOB_NOT_FOUND = "job-not-found"
    ATTEMPT_NOT_FOUND = "attempt-not-found"
    DEVICE_NOT_FOUND = "device-not-found"
    DEVICE_AGENT_NOT_FOUND = "device-agent-not-found"
    ARTIFACT_NOT_FOUND = "artifact-not-found"
    TOKEN_NOT_FOUND = "token-not-found"
    VALIDATION = "validation"
    PAYLOAD_TOO_LARGE = "payload-too-large"
    IDEMPOTENCY_KEY_REUSED = "idempotency-key-reused"
    BUDGET_TOO_SMALL = "budget-too-small"
    SELECTOR_UNSATISFIABLE = "selector-unsatisfiable"
    INVALID_TRANSITION = "invalid-transition"
    NOT_COMPARABLE = "not-comparable"
    RESULT_NOT_READY = "result-not-ready"
    # Between a device agent and its controller.
    LEASE_GONE = "lease-gone"
    FENCED = "fenced"
    DEVICE_AGENT_OUTDATED = "device-agent-outdated"
    EVENTS_GAP = "events-gap"
    EVENTS_MISSING = "events-missing"
    ARTIFACTS_MISSING = "artifacts-missing"
    ARTIFACT_CONFLICT = "artifact-conflict"
    ATTEMPT_SEALED = "attempt-sealed"
    TOO_MANY_ARTIFACTS = "too-many-artifacts"
    SEQ_CONFLICT = "seq-conflict"
    STREAM_SEALED = "stream-sealed"
    # The controller itself.
    NOT_READY = "not-ready"
    STORE_BUSY = "store-busy"
    STORE_UNREACHABLE = "store-unreachable"
    STORE_FULL = "store-full"
    STORE_READ_ONLY = "store-read-only"
    SCHEMA_NEWER = "schema-newer"
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class ProblemKind:
    """What a code means. retryable: the same request may succeed later, without anybody doing anything."""

    status: HTTPStatus
    fault: Fault
    retryable: bool = False


PROBLEMS: Final = MappingProxyType(
    {
        ProblemCode.NOT_AUTHENTICATED: ProblemKind(HTTPStatus.UNAUTHORIZED, Fault.JOB),
        ProblemCode.FORBIDDEN: ProblemKind(HTTPStatus.FORBIDDEN, Fault.JOB),
        ProblemCode.HOST_REFUSED: ProblemKind(HTTPStatus.BAD_REQUEST, Fault.JOB),
        ProblemCode.BAD_REQUEST: ProblemKind(HTTPStatus.BAD_REQUEST, Fault.JOB),
        ProblemCode.METHOD_NOT_ALLOWED: ProblemKind(HTTPStatus.METHOD_NOT_ALLOWED, Fault.JOB),
        ProblemCode.NOT_FOUND: ProblemKind(HTTPStatus.NOT_FOUND, Fault.JOB),
        ProblemCode.RUN_NOT_FOUND: ProblemKind(HTTPStatus.NOT_FOUND, Fault.JOB),
        ProblemCode.JOB_NOT_FOUND: ProblemKind(HTTPStatus.NOT_FOUND, Fault.JOB),
        ProblemCode.ATTEMPT_NOT_FOUND: ProblemKind(HTTPStatus.NOT_FOUND, Fault.JOB),
        ProblemCode.DEVICE_NOT_FOUND: ProblemKind(HTTPStatus.NOT_FOUND, Fault.JOB),
        ProblemCode.DEVICE_AGENT_NOT_FOUND: ProblemKind(HTTPStatus.NOT_FOUND, Fault.JOB),
        ProblemCode.ARTIFACT_NOT_FOUND: ProblemKind(HTTPStatus.NOT_FOUND, Fault.JOB),
        ProblemCode.TOKEN_NOT_FOUND: ProblemKind(HTTPStatus.NOT_FOUND, Fault.JOB),
        ProblemCode.VALIDATION: ProblemKind(HTTPStatus.UNPROCESSABLE_ENTITY, Fault.JOB),
        ProblemCode.PAYLOAD_TOO_LARGE: ProblemKind(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, Fault.JOB),
        ProblemCode.IDEMPOTENCY_KEY_REUSED: ProblemKind(HTTPStatus.UNPROCESSABLE_ENTITY, Fault.JOB),
        ProblemCode.BUDGET_TOO_SMALL: ProblemKind(HTTPStatus.UNPROCESSABLE_ENTITY, Fault.JOB),
        ProblemCode.SELECTOR_UNSATISFIABLE: ProblemKind(HTTPStatus.UNPROCESSABLE_ENTITY, Fault.JOB),
        ProblemCode.INVALID_TRANSITION: ProblemKind(HTTPStatus.CONFLICT, Fault.JOB),
        ProblemCode.NOT_COMPARABLE: ProblemKind(HTTPStatus.CONFLICT, Fault.JOB),
        ProblemCode.RESULT_NOT_READY: ProblemKind(HTTPStatus.CONFLICT, Fault.JOB, retryable=True),
        ProblemCode.LEASE_GONE: ProblemKind(HTTPStatus.GONE, Fault.LAB),
        ProblemCode.FENCED: ProblemKind(HTTPStatus.CONFLICT, Fault.LAB),
        ProblemCode.DEVICE_AGENT_OUTDATED: ProblemKind(HTTPStatus.UPGRADE_REQUIRED, Fault.LAB),
        ProblemCode.EVENTS_GAP: ProblemKind(HTTPStatus.CONFLICT, Fault.LAB, retryable=True),
        ProblemCode.EVENTS_MISSING: ProblemKind(HTTPStatus.CONFLICT, Fault.LAB, retryable=True),
        ProblemCode.ARTIFACTS_MISSING: ProblemKind(HTTPStatus.CONFLICT, Fault.LAB, retryable=True),
        ProblemCode.ARTIFACT_CONFLICT: ProblemKind(HTTPStatus.CONFLICT, Fault.FARM_BUG),
        ProblemCode.ATTEMPT_SEALED: ProblemKind(HTTPStatus.CONFLICT, Fault.FARM_BUG),
        ProblemCode.TOO_MANY_ARTIFACTS: ProblemKind(HTTPStatus.CONFLICT, Fault.LAB),
        ProblemCode.SEQ_CONFLICT: ProblemKind(HTTPStatus.UNPROCESSABLE_ENTITY, Fault.FARM_BUG),
        ProblemCode.STREAM_SEALED: ProblemKind(HTTPStatus.CONFLICT, Fault.FARM_BUG),
        ProblemCode.NOT_READY: ProblemKind(HTTPStatus.SERVICE_UNAVAILABLE, Fault.LAB, retryable=True),
        ProblemCode.STORE_BUSY: ProblemKind(HTTPStatus.SERVICE_UNAVAILABLE, Fault.LAB, retryable=True),
        ProblemCode.STORE_UNREACHABLE: ProblemKind(HTTPStatus.SERVICE_UNAVAILABLE, Fault.LAB, retryable=True),
        ProblemCode.STORE_FULL: ProblemKind(HTTPStatus.SERVICE_UNAVAILABLE, Fault.LAB, retryable=True),
        ProblemCode.STORE_READ_ONLY: ProblemKind(HTTPStatus.SERVICE_UNAVAILABLE, Fault.LAB, retryable=True),
        ProblemCode.SCHEMA_NEWER: ProblemKind(HTTPStatus.SERVICE_UNAVAILABLE, Fault.LAB),
        ProblemCode.INTERNAL: ProblemKind(HTTPStatus.INTERNAL_SERVER_ERROR, Fault.FARM_BUG),
    }
)


class FieldProblem(ContractModel):
    """One wrong field. pointer: JSON pointer into the body, e.g. `/engine/kv_pool_tokens`."""

    pointer: str
    detail: str


class Problem(ContractModel):
    """`code` is a ProblemCode, or one that only a newer controller knows; `detail` is for a person and says
    what to do."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    fault: Fault
    retryable: bool
    instance: str = ""
    retry_after_s: float | None = None
    errors: list[FieldProblem] = []
    next_seq: int | None = None
    """With `events-gap` and `events-missing`: the first event that the server lacks."""
    stream: str | None = None
    missing: list[str] = []
    trace_id: str = ""
