"""Who this agent is: its id and its own token, kept in one file that only its user can read."""

import asyncio
import os
import stat
from pathlib import Path

import structlog
from pydantic import ValidationError

from contract.agent_api import EnrollAnswer, EnrollRequest
from contract.ids import DeviceAgentId
from contract.model import ContractModel
from device_agent.client import ControllerClient
from device_agent.floor.atomic_file import write_atomically
from device_agent.floor.errors import FolderDamagedError, NotEnrolledError
from device_agent.floor.settings import AgentSettings
from rest.backoff import Backoff
from rest.errors import AnswerInvalidError, UndecidedError

_log = structlog.get_logger(__name__)

ADVICE = (
    "make a new enrolment token on the controller (POST /v1/enrollment-tokens) and start the agent with it "
    "in DYNOFARM_ENROLLMENT_TOKEN"
)


def identity_path(settings: AgentSettings) -> Path:
    """Where the identity lies."""
    return settings.agent_home / "identity.json"


def read_identity(path: Path) -> EnrollAnswer | None:
    """None when the agent never enrolled; FolderDamagedError when the file does not parse."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        # Somebody loosened it; the token must not stay readable by others.
        os.chmod(path, 0o600)
    try:
        return _identity_of_0_1(data) or EnrollAnswer.model_validate_json(data)
    except ValidationError as error:
        raise FolderDamagedError(f"{path} does not parse; remove it and enrol again: {ADVICE}") from error


class _IdentityOf01(ContractModel):
    agent_id: DeviceAgentId
    token: str


def _identity_of_0_1(data: bytes) -> EnrollAnswer | None:
    """0.1 called the id `agent_id`; the file is read as it is, so that 0.1 can be gone back to."""
    try:
        found = _IdentityOf01.model_validate_json(data)
    except ValidationError:
        return None
    return EnrollAnswer(device_agent_id=found.agent_id, token=found.token)


async def enroll(client: ControllerClient, settings: AgentSettings, backoff: Backoff) -> EnrollAnswer:
    """A new identity, written to disk before it is used; waits as long as the controller is away.

    NotEnrolledError: no enrolment token was given. TokenRefusedError: it was used before, or is too old.
    """
    if settings.enrollment_token is None:
        raise NotEnrolledError(f"this agent has no identity yet: {ADVICE}")
    request = EnrollRequest(agent_name=settings.agent_name)
    while True:
        try:
            identity = await client.enroll(settings.enrollment_token.get_secret_value(), request)
            break
        except AnswerInvalidError:
            raise
        except UndecidedError as error:
            wait_s = error.retry_after_s or backoff.next_s()
            _log.warning("enrolment_waits", detail=str(error), wait_s=round(wait_s, 1))
            await asyncio.sleep(wait_s)
    write_atomically(identity_path(settings), identity.model_dump_json().encode())
    _log.info("enrolled", device_agent_id=identity.device_agent_id)
    return identity
