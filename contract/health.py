"""What a controller says of itself on /health and /ready."""

import hashlib
import hmac
from typing import Annotated, Literal

from pydantic import Field

from contract.model import ContractModel


class HealthQuery(ContractModel):
    """challenge: the controller is to prove that it knows the token of its home folder."""

    challenge: Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z0-9_-]*$")] = ""


class Health(ContractModel):
    """Liveness and readiness; open without a token."""

    status: Literal["ok", "degraded"]
    version: str
    contract_version: str
    checks: dict[str, str]
    proof: str = ""
    """`proof_of` the challenge; empty without a challenge, and where the home has no token."""


def proof_of(token: str, port: int, challenge: str) -> str:
    """HMAC-SHA256, by the token, over the port that the controller listens on and the challenge.

    With the port: whoever listens on another one cannot pass the challenge on to the true controller.
    """
    return hmac.new(
        token.encode(), f"dynofarm health {port} {challenge}".encode(), hashlib.sha256
    ).hexdigest()


def is_proof(given: str, token: str, port: int, challenge: str) -> bool:
    """Whether it is the proof; compared in constant time."""
    return hmac.compare_digest(given.encode(), proof_of(token, port, challenge).encode())
