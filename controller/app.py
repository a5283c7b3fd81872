"""Composition root of the API: settings to database, background work and routes. Only here is it wired."""

import importlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import structlog
from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware

from contract.routes import OPENAPI_PATH
from contract.version import installed_version
from controller.api import (
    agent_events,
    agent_leases,
    artifacts,
    attempts,
    audit,
    catalogue,
    device_agents,
    devices,
    login,
    runs,
    service,
    tokens,
)
from controller.api.auth import AuthenticationMiddleware
from controller.api.context import ApiContext
from controller.api.metrics import ServiceMetrics
from controller.api.middleware import BodyLimitMiddleware, HostMiddleware, RequestMiddleware
from controller.api.problems import install_problem_handlers
from controller.api.sessions import SessionSigner, session_secret
from controller.db.session import Sessions, open_sessions
from controller.db.work_signal import SignalListener
from controller.runs.live import EventCache
from controller.settings import Settings
from controller.tasks.application import build_celery
from controller.tasks.context import TaskContext, utc_now
from controller.tasks.embedded import EmbeddedTasks
from controller.tasks.publisher import OutboxPublisher

STOP_DEADLINE_S: Final = 5.0

_ROUTERS: Final = (
    *(
        login.router,
        service.router,
        runs.router,
        attempts.router,
        artifacts.router,
        devices.router,
        device_agents.router,
        catalogue.router,
        tokens.router,
        audit.router,
    ),
    *(agent_leases.router, agent_events.router),
)

_log = structlog.get_logger(__name__)


def create_app(settings: Settings) -> FastAPI:
    """The application; its database must be migrated before the first request.

    Background threads run between start-up and shut-down of its lifespan only.
    """
    sessions = open_sessions(settings.resolved_database_url)
    background = Background(settings, sessions)
    context = ApiContext(sessions, settings, utc_now, after_commit=background.wake)
    signer = SessionSigner(session_secret(settings.session_secret.get_secret_value(), settings.home_path))
    metrics = ServiceMetrics()
    app = FastAPI(
        title="dynofarm",
        version=installed_version(),
        # The pages of the framework load scripts from elsewhere; the document itself is served.
        docs_url=None,
        redoc_url=None,
        openapi_url=OPENAPI_PATH,
        lifespan=background.lifespan,
        middleware=[
            Middleware(RequestMiddleware, metrics=metrics),
            Middleware(HostMiddleware, allowed_hosts=settings.allowed_host_names),
            Middleware(
                BodyLimitMiddleware,
                max_body_bytes=settings.max_body_bytes,
                max_artifact_bytes=settings.max_artifact_bytes,
            ),
            Middleware(AuthenticationMiddleware, context=context, signer=signer),
        ],
    )
    app.state.context = context
    app.state.signer = signer
    app.state.metrics = metrics
    app.state.event_cache = EventCache()
    install_problem_handlers(app)
    for router in _ROUTERS:
        app.include_router(router)
    if settings.dashboard:
        mount_dashboard(app, settings)
    return app


def mount_dashboard(app: FastAPI, settings: Settings) -> bool:
    """Serve the dashboard beside the API where its extra is installed; returns whether it is."""
    try:
        dashboard = importlib.import_module("dashboard.app")
    except ImportError as error:
        _log.info("dashboard_absent", detail=str(error), advice="install the extra `dashboard` to have it")
        return False
    dashboard.mount(app, settings.local_url)
    return True


@dataclass(slots=True)
class Background:
    """The threads beside the API. One publishes the outbox, to a broker or by doing the tasks itself; without
    a broker another does the periodic tasks; with PostgreSQL one hears what other processes commit."""

    settings: Settings
    sessions: Sessions
    publisher: OutboxPublisher | None = None

    def wake(self) -> None:
        """A unit of work was committed: there may be something to publish."""
        if self.publisher is not None:
            self.publisher.wake()

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """Start the threads, serve, stop them within STOP_DEADLINE_S each, close the database."""
        context = TaskContext(self.sessions, self.settings)
        tasks = EmbeddedTasks(context) if self.settings.is_embedded else None
        self.publisher = OutboxPublisher(context, tasks or build_celery(context))
        listener = SignalListener(self.sessions.engine, self.sessions.work_signal)
        threads = [each for each in (tasks, self.publisher, listener) if each is not None]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            app.state.context.waiting_claims.close()
            for thread in threads:
                await run_in_threadpool(thread.stop, STOP_DEADLINE_S)
            self.sessions.close()
