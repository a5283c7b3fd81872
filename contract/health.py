"""What a controller says of itself on /health and /ready."""

from typing import Literal

from contract.model import ContractModel


class Health(ContractModel):
    """Liveness and readiness; open without a token."""

    status: Literal["ok", "degraded"]
    version: str
    contract_version: str
    checks: dict[str, str]
