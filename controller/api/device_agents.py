"""Device agents over HTTP: which there are, and that one gets no new work."""

from fastapi import APIRouter

from contract import routes
from contract.administration import DeviceAction, DeviceAgentList, DeviceAgentView
from contract.ids import DeviceAgentId
from controller.api.devices import Admin
from controller.api.routing import serves
from controller.api.runs import Context, Viewer
from controller.db.devices import AgentRepository, DeviceRepository
from controller.db.models import AgentRow
from controller.db.unit_of_work import UnitOfWork
from controller.protocol.operators import drain_agent, resume_agent

router = APIRouter(tags=["device agents"])


@serves(router, routes.LIST_DEVICE_AGENTS)
def list_device_agents(context: Context, _: Viewer) -> DeviceAgentList:
    """Every device agent that ever enrolled, by id."""
    with context.view() as work:
        agents = AgentRepository(work.session).all()
        return DeviceAgentList(device_agents=[_view(work, agent) for agent in agents])


@serves(router, routes.DRAIN_DEVICE_AGENT)
def drain(
    device_agent_id: DeviceAgentId, body: DeviceAction, context: Context, principal: Admin
) -> DeviceAgentView:
    """No new work for any of its devices until it is resumed; what runs goes on."""
    with context.unit_of_work() as work:
        return _view(work, drain_agent(work, device_agent_id, principal.name, body.reason))


@serves(router, routes.RESUME_DEVICE_AGENT)
def resume(
    device_agent_id: DeviceAgentId, body: DeviceAction, context: Context, principal: Admin
) -> DeviceAgentView:
    """It gets work again, from its next report on."""
    with context.unit_of_work() as work:
        return _view(work, resume_agent(work, device_agent_id, principal.name, body.reason))


def _view(work: UnitOfWork, agent: AgentRow) -> DeviceAgentView:
    devices = DeviceRepository(work.session).ids_of_agent(agent.device_agent_id)
    return DeviceAgentView(
        device_agent_id=agent.device_agent_id,
        name=agent.name,
        version=agent.agent_version,
        contract_version=agent.contract_version,
        draining=agent.drain,
        devices=len(devices),
        disk_free_bytes=agent.health.get("disk_free_bytes"),
        spool_backlog_events=agent.health.get("spool_backlog_events"),
        enrolled_at=agent.created_at,
        last_seen_at=agent.last_seen_at,
    )
