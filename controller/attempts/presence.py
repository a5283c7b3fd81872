"""That an agent was heard of: by any call, not only by its hello."""

from contract.version import SUPPORTED_CONTRACT_VERSIONS
from controller.attempts.unit_of_work import UnitOfWork
from controller.db.devices import AgentRepository
from controller.db.models import AgentRow
from controller.errors import AgentOutdatedError, NotAuthenticatedError


def touch_agent(work: UnitOfWork, device_agent_id: str) -> AgentRow:
    """The agent, heard of now; NotAuthenticatedError if it never enrolled."""
    agent = AgentRepository(work.session).find(device_agent_id)
    if agent is None:
        raise NotAuthenticatedError
    agent.last_seen_at = max(agent.last_seen_at, work.now)
    return agent


def require_contract(version: str) -> None:
    """AgentOutdatedError unless the version is spoken here."""
    if version not in SUPPORTED_CONTRACT_VERSIONS:
        raise AgentOutdatedError(version, tuple(sorted(SUPPORTED_CONTRACT_VERSIONS)))
