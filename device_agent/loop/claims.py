"""Claims that survive a lost answer and a killed agent: a claim is on disk before it is sent."""

import structlog
from pydantic import ValidationError
from ulid import ULID

from contract.agent_api import MAX_CLAIM_WAIT_S, ClaimRequest
from contract.ids import DeviceId
from device_agent.client import ControllerClient
from device_agent.floor.atomic_file import write_atomically
from device_agent.floor.attempt_folder import Grant
from device_agent.floor.settings import AgentSettings
from rest.errors import AnswerInvalidError, RefusedError

_log = structlog.get_logger(__name__)


class ClaimDesk:
    """One open claim per device. The same claim_id always gets the same answer, so asking again is safe."""

    def __init__(self, client: ControllerClient, settings: AgentSettings) -> None:
        """The folder `<home>/agent/claims` must exist."""
        self._client = client
        self._folder = settings.agent_home / "claims"

    async def claim(self, device_id: DeviceId, wait_s: float) -> Grant | None:
        """The answer to the open claim, or to a new one; None when there is no work.

        A grant stays open until `forget`: whoever is killed before keeping it gets it again. A refusal
        closes the claim; anything else leaves it open.
        """
        request = self._open(device_id) or self._new(device_id, wait_s)
        try:
            lease = await self._client.claim(request)
        except (RefusedError, AnswerInvalidError):
            # The same question would get the same answer for ever.
            self.forget(device_id)
            raise
        if lease is None:
            self.forget(device_id)
            return None
        if lease.device_id != device_id:
            self.forget(device_id)
            raise AnswerInvalidError(f"a lease for {lease.device_id} answers a claim for {device_id}")
        return Grant(claim_id=request.claim_id, lease=lease)

    def forget(self, device_id: DeviceId) -> None:
        """The claim is answered and the answer is kept."""
        (self._folder / f"{device_id}.json").unlink(missing_ok=True)

    def _new(self, device_id: DeviceId, wait_s: float) -> ClaimRequest:
        request = ClaimRequest(
            claim_id=f"clm_{ULID()}", devices=[device_id], wait_s=min(wait_s, MAX_CLAIM_WAIT_S)
        )
        write_atomically(self._folder / f"{device_id}.json", request.model_dump_json().encode())
        return request

    def _open(self, device_id: DeviceId) -> ClaimRequest | None:
        path = self._folder / f"{device_id}.json"
        try:
            return ClaimRequest.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError:
            _log.error("claim_damaged", path=str(path))
            return None
