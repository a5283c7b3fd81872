"""Agent surface, second half: events, artifacts, result. Thin: parse, one unit of work, answer."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from starlette.concurrency import run_in_threadpool

from contract import routes
from contract.agent_api import MAX_BATCH_BYTES, EventsAnswer, ResultAnswer, ResultRequest
from contract.artifacts import ArtifactRef, ArtifactUpload
from controller.api.agent_leases import Agent, Context
from controller.api.artifacts import ArtifactPlace
from controller.api.context import ApiContext
from controller.api.routing import serves
from controller.errors import PayloadTooLargeError
from controller.ingest.artifacts import Artifact, store_artifact
from controller.ingest.batch import read_batch
from controller.ingest.store import store_batch
from controller.protocol.results import finish

router = APIRouter(tags=["device agent"])


async def bounded_body(request: Request, limit_bytes: int) -> bytes:
    """The body, read only as far as it is allowed to go; PayloadTooLargeError beyond."""
    chunks: list[bytes] = []
    size_bytes = 0
    async for chunk in request.stream():
        size_bytes += len(chunk)
        if size_bytes > limit_bytes:
            raise PayloadTooLargeError(limit_bytes)
        chunks.append(chunk)
    return b"".join(chunks)


@serves(router, routes.POST_EVENTS)
async def post_events(attempt_id: str, context: Context, agent: Agent, request: Request) -> EventsAnswer:
    """Store a batch (gzip NDJSON); the answer acknowledges everything before next_seq."""
    body = await bounded_body(request, MAX_BATCH_BYTES)
    encoding = request.headers.get("content-encoding", "").strip().lower()
    return await run_in_threadpool(_store, context, agent.device_agent_id, attempt_id, (body, encoding))


@serves(router, routes.PUT_ARTIFACT)
async def put_artifact(
    place: Annotated[ArtifactPlace, Depends()],
    said: Annotated[ArtifactUpload, Query()],
    context: Context,
    agent: Agent,
    request: Request,
) -> ArtifactRef:
    """Store a file under a name; the same content again is not an error, another one is."""
    content = await bounded_body(request, context.settings.max_artifact_bytes)
    artifact = Artifact(place.attempt_id, place.name, said, content)
    return await run_in_threadpool(_keep, context, agent.device_agent_id, artifact)


@serves(router, routes.PUT_RESULT)
def put_result(attempt_id: str, body: ResultRequest, context: Context, agent: Agent) -> ResultAnswer:
    """Accept a result, or 409 with what is missing."""
    with context.unit_of_work() as work:
        answer = finish(work, agent.device_agent_id, attempt_id, body)
    return answer


def _store(
    context: ApiContext, device_agent_id: str, attempt_id: str, sent: tuple[bytes, str]
) -> EventsAnswer:
    # Checking the lines takes longer than storing them, and needs no transaction.
    batch = read_batch(*sent, attempt_id)
    with context.unit_of_work() as work:
        return store_batch(work, device_agent_id, attempt_id, batch)


def _keep(context: ApiContext, device_agent_id: str, artifact: Artifact) -> ArtifactRef:
    with context.unit_of_work() as work:
        kept = store_artifact(work, device_agent_id, artifact)
        return ArtifactRef(name=kept.name, sha256=kept.sha256, size_bytes=kept.size_bytes)
