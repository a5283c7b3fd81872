"""Agent surface, first half: enrol, hello, claim, renew. Thin: parse, one unit of work, answer."""

import asyncio
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from starlette.concurrency import run_in_threadpool

from contract import routes
from contract.agent_api import (
    ClaimRequest,
    EnrollAnswer,
    EnrollRequest,
    Hello,
    HelloAnswer,
    Lease,
    RenewAnswer,
    RenewRequest,
)
from controller.api.agent_body import versioned
from controller.api.auth import AgentPrincipal, principal_of, require_agent
from controller.api.context import ApiContext, context_of
from controller.api.routing import serves
from controller.db.session import read_only
from controller.db.unit_of_work import UnitOfWork
from controller.protocol.enrolment import enroll
from controller.protocol.hello import hello
from controller.protocol.leases import claim, close_claim, renew, would_grant

router = APIRouter(tags=["device agent"])

Agent = Annotated[AgentPrincipal, Depends(require_agent)]
Context = Annotated[ApiContext, Depends(context_of)]


@serves(router, routes.ENROLL)
def post_enroll(
    body: Annotated[EnrollRequest, Depends(versioned(EnrollRequest))], context: Context, request: Request
) -> EnrollAnswer:
    """Exchange the enrolment token that authenticated this request for the agent's own."""
    token_sha256 = principal_of(request).token_sha256
    with context.unit_of_work() as work:
        return enroll(work, token_sha256, body)


@serves(router, routes.HELLO)
def post_hello(
    body: Annotated[Hello, Depends(versioned(Hello))], context: Context, agent: Agent
) -> HelloAnswer:
    """The agent's full state against the books."""
    with context.unit_of_work() as work:
        return hello(work, agent.device_agent_id, body)


@serves(router, routes.CLAIM, response_model=Lease, responses={204: {"description": "nothing to do"}})
async def post_claim(
    body: ClaimRequest, context: Context, agent: Agent, request: Request
) -> Lease | Response:
    """A lease, or 204 after body.wait_s. Holds no connection to the database while it waits."""
    clock = asyncio.get_running_loop().time
    deadline_s = clock() + body.wait_s
    lease = await run_in_threadpool(_claim, context, agent.device_agent_id, body)
    while lease is None and clock() < deadline_s and not context.bell.closed:
        await context.bell.wait(min(context.settings.claim_poll_s, deadline_s - clock()))
        if await request.is_disconnected():
            # Nobody would hear the answer; the same claim_id may come again.
            return Response(status_code=HTTPStatus.NO_CONTENT)
        if await run_in_threadpool(_would_grant, context, agent.device_agent_id, body):
            lease = await run_in_threadpool(_claim, context, agent.device_agent_id, body)
    if lease is None:
        lease = await run_in_threadpool(_close_claim, context, agent.device_agent_id, body)
    return lease if lease is not None else Response(status_code=HTTPStatus.NO_CONTENT)


@serves(router, routes.RENEW)
def post_renew(lease_id: str, body: RenewRequest, context: Context, agent: Agent) -> RenewAnswer:
    """Keep a lease; 410 once it is gone."""
    with context.unit_of_work() as work:
        return renew(work, agent.device_agent_id, lease_id, body)


def _claim(context: ApiContext, device_agent_id: str, body: ClaimRequest) -> Lease | None:
    with context.unit_of_work() as work:
        return claim(work, device_agent_id, body)


def _would_grant(context: ApiContext, device_agent_id: str, body: ClaimRequest) -> bool:
    with read_only(context.sessions) as session:
        work = UnitOfWork(session, context.now(), context.settings.times, context.chance)
        return would_grant(work, device_agent_id, body.devices)


def _close_claim(context: ApiContext, device_agent_id: str, body: ClaimRequest) -> Lease | None:
    with context.unit_of_work() as work:
        return close_claim(work, device_agent_id, body.claim_id)
