"""The control socket of the emulated devices: one request, one answer."""

import difflib
import socket
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from client.errors import InfrastructureError, UsageError
from contract.virtual_devices import (
    CONTROL_SOCKET,
    FAULTS,
    FOLDER,
    ControlAnswer,
    EmulatorView,
    FaultKind,
    FaultRequest,
    ListRequest,
    Option,
    StopRequest,
    checked_options,
)

_TIMEOUT_S: Final = 120.0
"""A restart is answered when the device is up again."""
_MAX_ANSWER_BYTES: Final = 16 << 20
_HOW_TO_START: Final = "start them with `dynofarm virtual`, with the same --home"


def ask(home: Path, request: ListRequest | FaultRequest | StopRequest) -> EmulatorView:
    """The emulator's state after the request; UsageError for what it refuses or when none runs."""
    path = home / FOLDER / CONTROL_SOCKET
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_TIMEOUT_S)
            connection.connect(str(path))
            connection.sendall(request.model_dump_json().encode() + b"\n")
            with connection.makefile("rb") as lines:
                answer = ControlAnswer.model_validate_json(lines.readline(_MAX_ANSWER_BYTES))
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError) as error:
        raise UsageError("no-virtual-devices", f"no virtual devices run in {home}", _HOW_TO_START) from error
    except ValidationError as error:
        raise InfrastructureError(
            "virtual-answer", "what answers there is not an emulator of this version", _HOW_TO_START
        ) from error
    except OSError as error:
        raise InfrastructureError("virtual-not-reached", f"{path}: {error}", _HOW_TO_START) from error
    if not answer.ok or answer.view is None:
        raise UsageError(answer.error or "refused", answer.detail, _next_step(answer.error))
    return answer.view


def fault_kind(name: str) -> FaultKind:
    """UsageError, with the nearest names, for one that does not exist."""
    kind = FAULTS.get(name)
    if kind is not None:
        return kind
    near = difflib.get_close_matches(name, FAULTS, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise UsageError(
        "unknown-fault", f"there is no fault {name!r}{hint}", "`dynofarm virtual faults` explains them all"
    )


def fault_options(kind: FaultKind, pairs: list[str]) -> dict[str, Option]:
    """`name=value` of a command line, all checked; UsageError for a wrong one."""
    given: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError("bad-option", f"{pair!r} is not NAME=VALUE", _explain(kind))
        given[name] = value
    try:
        return checked_options(kind, given)
    except ValueError as error:
        raise UsageError("bad-option", str(error), _explain(kind)) from error


def _explain(kind: FaultKind) -> str:
    return f"`dynofarm virtual faults {kind.name}` explains its options"


def _next_step(error: str) -> str:
    return "`dynofarm virtual list` shows the devices" if error == "unknown-device" else ""
