"""Composition root of the device agent: settings, home, identity, targets, signals; then the loops."""

import asyncio
import fcntl
import logging
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from enum import IntEnum

import structlog

from device_agent.client import ControllerClient
from device_agent.floor.errors import FolderDamagedError, HomeLockedError, NotEnrolledError
from device_agent.floor.settings import AgentSettings
from device_agent.loop.identity import ADVICE, enroll, identity_path, read_identity
from device_agent.loop.loop import Agent
from device_agent.targets.host.target import HostTarget
from device_agent.targets.ios.supervisor import IosFleet
from rest.backoff import Backoff
from rest.errors import AnswerInvalidError, RefusedError, SettingError

_log = structlog.get_logger(__name__)

_PARENT_POLL_S = 0.5
_DISK_THREADS = 32


class AgentExit(IntEnum):
    """Exit codes of `python -m device_agent`. RESTART never leaves the process: it starts itself anew."""

    STOPPED = 0
    USAGE = 2
    NOT_ENROLLED = 3
    HOME_LOCKED = 4
    HOME_DAMAGED = 5
    RESTART = 75


def serve(settings: AgentSettings) -> AgentExit:
    """Run until SIGTERM or SIGINT; never ends because the controller is away."""
    _configure_log()
    parent_pid = os.getppid()
    try:
        with home_lock(settings):
            return asyncio.run(_serve(settings, parent_pid))
    except HomeLockedError as error:
        _log.error("home_locked", detail=str(error))
        return AgentExit.HOME_LOCKED
    except SettingError as error:
        _log.error("setting_wrong", detail=str(error))
        return AgentExit.USAGE
    except FolderDamagedError as error:
        _log.error("home_damaged", detail=str(error))
        return AgentExit.HOME_DAMAGED


async def _serve(settings: AgentSettings, parent_pid: int) -> AgentExit:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    # Spools and files of many attempts wait for the disk at the same time; the default knows two cores.
    loop.set_default_executor(ThreadPoolExecutor(_DISK_THREADS, thread_name_prefix="disk"))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    watch = asyncio.create_task(_watch_parent(parent_pid, stop)) if settings.exit_with_parent else None
    client = ControllerClient(settings.controller_url, settings.call_timeout_s, settings.ca_file)
    try:
        if (refused := await _identify(client, settings, stop)) is not None:
            return refused
        fleet = IosFleet(settings) if settings.usbmux_address else None
        agent = Agent(client, settings, [HostTarget(settings)], fleet)
        await agent.run(stop)
        return AgentExit.RESTART if agent.over_budget and not stop.is_set() else AgentExit.STOPPED
    finally:
        if watch is not None:
            watch.cancel()
        await client.close()


async def _identify(
    client: ControllerClient, settings: AgentSettings, stop: asyncio.Event
) -> AgentExit | None:
    """Speak with the identity on disk, or enrol. None: go on; else the exit code."""
    identity = read_identity(identity_path(settings))
    if identity is None:
        backoff = Backoff(settings.retry_first_s, settings.retry_cap_s)
        enrolling = asyncio.create_task(enroll(client, settings, backoff))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([enrolling, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not enrolling.done():
            enrolling.cancel()
            await asyncio.gather(enrolling, return_exceptions=True)
            return AgentExit.STOPPED
        try:
            identity = enrolling.result()
        except (NotEnrolledError, RefusedError, AnswerInvalidError) as error:
            _log.error("not_enrolled", detail=str(error), advice=ADVICE)
            return AgentExit.NOT_ENROLLED
    client.authorise(identity.token)
    _log.info(
        "agent_starts", device_agent_id=identity.device_agent_id, controller_url=settings.controller_url
    )
    return None


async def _watch_parent(parent_pid: int, stop: asyncio.Event) -> None:
    while os.getppid() == parent_pid:
        await asyncio.sleep(_PARENT_POLL_S)
    _log.warning("parent_gone", pid=parent_pid)
    stop.set()


@contextmanager
def home_lock(settings: AgentSettings) -> Iterator[None]:
    """Make the home's folders and hold its lock; HomeLockedError when another agent has it.

    Two agents in one home would both adopt the same runtime. The system frees the lock at any death.
    """
    for folder in (settings.agent_home, settings.attempts_folder, settings.agent_home / "claims"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    settings.models_folder.mkdir(parents=True, exist_ok=True)
    with (settings.agent_home / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise HomeLockedError(
                f"another device agent works in {settings.agent_home}; stop it, or choose another --home"
            ) from error
        yield


def _configure_log() -> None:
    """One JSON object a line on standard error; httpx's line for every request is not wanted."""
    logging.getLogger("httpx").setLevel(logging.WARNING)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
    )
