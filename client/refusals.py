"""A failed call to what a command ends with: which exit code, and what to do next."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from client.errors import ClientError, InconclusiveError, InfrastructureError, NoCapacityError, UsageError
from contract.problems import ProblemCode
from rest.errors import (
    ControllerUnreachableError,
    NotOurFarmError,
    RefusedError,
    RestError,
    SettingError,
    UnavailableError,
)

Model = TypeVar("Model", bound=BaseModel)

_KINDS: Final[Mapping[str, type[ClientError]]] = MappingProxyType(
    {
        ProblemCode.RESULT_NOT_READY: InconclusiveError,
        ProblemCode.SELECTOR_UNSATISFIABLE: NoCapacityError,
    }
)
_NEXT_STEPS: Final[Mapping[str, str]] = MappingProxyType(
    {
        ProblemCode.NOT_AUTHENTICATED: (
            "set DYNOFARM_TOKEN to a valid token, or --home to the farm of this machine"
        ),
        ProblemCode.FORBIDDEN: "ask an admin of the farm for a token with a larger scope",
        ProblemCode.RUN_NOT_FOUND: "`dynofarm runs` lists the runs",
        ProblemCode.DEVICE_NOT_FOUND: "`dynofarm devices list` lists the devices",
        ProblemCode.SELECTOR_UNSATISFIABLE: (
            "`dynofarm devices list` shows the devices and the models that they have"
        ),
        ProblemCode.NOT_COMPARABLE: "compare other runs, or add --force to see the figures side by side",
        ProblemCode.RESULT_NOT_READY: "`dynofarm watch RUN` follows the run to its end",
        ProblemCode.IDEMPOTENCY_KEY_REUSED: "leave --idempotency-key out, or choose a new one",
        ControllerUnreachableError.code: (
            "start one with `dynofarm up`, or give its address with --controller or DYNOFARM_CONTROLLER"
        ),
        NotOurFarmError.code: (
            "start the farm with `dynofarm up`, or set DYNOFARM_TOKEN to a token of the controller there"
        ),
        "bad-address": "give --controller as http://HOST:PORT or https://HOST; an IPv6 host in brackets",
        "bad-token": "copy it again into DYNOFARM_TOKEN, without quotes, blanks or line ends",
        "bad-certificates": "name a file with certificates in PEM",
        "certificate-not-trusted": "name the file of its authority's certificate in DYNOFARM_CA_FILE",
    }
)


def client_error_of(error: RestError) -> ClientError:
    """The error with the exit code and the next step that its code has."""
    kind = _KINDS.get(error.code) or _kind_of(error)
    next_step = _NEXT_STEPS.get(error.code, "")
    if kind is InfrastructureError and error.trace_id:
        next_step = f"look for trace {error.trace_id} in the controller's log"
    return kind(error.code, error.detail, next_step, error.errors)


def built(model: type[Model], **options: object) -> Model:
    """The body or query that options make; UsageError that names the first one that cannot be."""
    try:
        return model.model_validate(options)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = "-".join(str(part) for part in first["loc"]).replace("_", "-")
        raise UsageError("bad-option", f"{name}: {first['msg']}") from error


def _kind_of(error: RestError) -> type[ClientError]:
    if isinstance(error, UnavailableError):
        return InfrastructureError
    return UsageError if isinstance(error, RefusedError | SettingError) else InfrastructureError
