"""Agent surface, first half: enrol, hello, claim, renew. Thin: parse, one unit of work, answer."""

import asyncio
from http import HTTPStatus
from typing import Annotated, Final

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
from controller.protocol.enrolment import enroll
from controller.protocol.hello import hello
from controller.protocol.leases import WaitingClaim, claim, renew

_TRY_AGAIN_S: Final = 0.25

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
    waiting = WaitingClaim(body.claim_id, agent.device_agent_id, tuple(body.devices))
    lease: Lease | None = None
    while lease is None and await context.waiting_claims.opportunity(waiting, deadline_s - clock()):
        if await request.is_disconnected():
            # Nobody would hear the answer; the same claim_id may come again.
            return Response(status_code=HTTPStatus.NO_CONTENT)
        lease = await run_in_threadpool(_claim, context, agent.device_agent_id, body)
        if clock() >= deadline_s:
            break
        if lease is None:
            # Another claim was faster.
            await asyncio.sleep(min(_TRY_AGAIN_S, deadline_s - clock()))
    if (
        lease is None
        and not await request.is_disconnected()
        and not await context.closing_claims.end(waiting)
    ):
        lease = await run_in_threadpool(_claim, context, agent.device_agent_id, body)
    return lease if lease is not None else Response(status_code=HTTPStatus.NO_CONTENT)


@serves(router, routes.RENEW)
def post_renew(lease_id: str, body: RenewRequest, context: Context, agent: Agent) -> RenewAnswer:
    """Keep a lease; 410 once it is gone."""
    with context.unit_of_work() as work:
        return renew(work, agent.device_agent_id, lease_id, body)


def _claim(context: ApiContext, device_agent_id: str, body: ClaimRequest) -> Lease | None:
    with context.unit_of_work() as work:
        return claim(work, device_agent_id, body)
