"""Which device agents there are: enrolled by a token that works once, heard of by every call of theirs."""

from sqlalchemy import update

from contract.administration import AuditAction
from contract.agent_api import EnrollAnswer, EnrollRequest
from contract.version import SUPPORTED_CONTRACT_VERSIONS
from controller.db.audit import Act, AuditRepository
from controller.db.devices import AgentRepository
from controller.db.models import AgentRow, TokenKind, TokenRow
from controller.db.tokens import TokenGrant, TokenRepository
from controller.db.unit_of_work import UnitOfWork
from controller.errors import AgentOutdatedError, NotAuthenticatedError


def enroll(work: UnitOfWork, token_sha256: str, request: EnrollRequest) -> EnrollAnswer:
    """The agent's id and token. An agent of that name that was here before keeps its id and devices, and
    its older tokens end: two machines under one name notice it at once.

    Raises NotAuthenticatedError for a token that is unknown, expired or used, AgentOutdatedError.
    """
    require_contract(request.contract_version)
    tokens = TokenRepository(work.session)
    enrolment = tokens.find_digest(token_sha256, work.now)
    if enrolment is None or enrolment.kind is not TokenKind.ENROLMENT:
        raise NotAuthenticatedError("the enrolment token is unknown, expired or used; ask for a new one")
    if not tokens.use_once(enrolment, work.now):
        raise NotAuthenticatedError("the enrolment token was used by another agent a moment ago")
    agent = AgentRepository(work.session).named(request.agent_name)
    if agent is None:
        agent = AgentRow(
            device_agent_id=work.new_id("agt"),
            name=request.agent_name,
            contract_version=request.contract_version,
            created_at=work.now,
            last_seen_at=work.now,
        )
        work.session.add(agent)
        work.session.flush()
        detail = f"as {agent.name}"
    else:
        detail = f"again as {agent.name}: its earlier token is revoked"
    act = Act(enrolment.name, AuditAction.ENROL, agent.device_agent_id, detail)
    AuditRepository(work.session).record(act, work.now)
    work.session.execute(
        update(TokenRow)
        .where(TokenRow.device_agent_id == agent.device_agent_id, TokenRow.revoked_at.is_(None))
        .values(revoked_at=work.now)
    )
    token = tokens.issue(
        TokenGrant(TokenKind.AGENT, agent.name, device_agent_id=agent.device_agent_id), work.now
    )
    return EnrollAnswer(device_agent_id=agent.device_agent_id, token=token)


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
