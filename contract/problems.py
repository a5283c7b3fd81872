"""Problem documents (RFC 9457), the one shape of every error over HTTP."""

from contract.failures import Fault
from contract.model import ContractModel

PROBLEM_MEDIA_TYPE = "application/problem+json"
PROBLEM_TYPE_PREFIX = "urn:dynofarm:problem:"


class FieldProblem(ContractModel):
    """One wrong field. pointer: JSON pointer into the body, e.g. `/engine/kv_pool_tokens`."""

    pointer: str
    detail: str


class Problem(ContractModel):
    """`code` is stable and kebab-case; `detail` is for a person and says what to do."""

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
