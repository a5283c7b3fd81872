"""This machine's device agent as a child process: started, started again when it dies, stopped in time."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

import structlog

LOG_FILE: Final = "agent.log"
STOP_DEADLINE_S: Final = 15.0
"""The agent itself needs up to 10 s to stop its runtimes and to send what it knows."""
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 30.0
_LOG_KEPT_BYTES: Final = 10 << 20

_log = structlog.get_logger(__name__)


class AgentChild:
    """One child at a time; its output goes to `agent.log` in the home folder."""

    def __init__(self, home: Path, url: str, new_token: Callable[[], str]) -> None:
        """`new_token` makes the one-time token with which each start may enrol."""
        self._home = home
        self._url = url
        self._new_token = new_token
        self._process: asyncio.subprocess.Process | None = None

    async def keep_running(self) -> None:
        """Start the agent, and again whenever it has ended, with a growing pause; returns only by cancel."""
        pause_s = _FIRST_PAUSE_S
        loop = asyncio.get_running_loop()
        while True:
            started_s = loop.time()
            self._process = await self._start()
            _log.info("agent_started", pid=self._process.pid, log=str(self._home / LOG_FILE))
            code = await self._process.wait()
            if loop.time() - started_s > _LONGEST_PAUSE_S:
                pause_s = _FIRST_PAUSE_S
            _log.warning("agent_ended", exit_code=code, restart_s=pause_s, log=str(self._home / LOG_FILE))
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL after STOP_DEADLINE_S; nothing for a child that has ended."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(STOP_DEADLINE_S):
                await process.wait()
        except TimeoutError:
            _log.warning("agent_killed", pid=process.pid, deadline_s=STOP_DEADLINE_S)
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _start(self) -> asyncio.subprocess.Process:
        token = await asyncio.to_thread(self._new_token)
        arguments = ["--home", str(self._home), "--controller", self._url, "--exit-with-parent"]
        with self._open_log() as log:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "device_agent",
                *arguments,
                # Not on the command line: every user of the machine can read that.
                env={**os.environ, "DYNOFARM_ENROLLMENT_TOKEN": token},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C in the terminal is for us; the child is told in its turn.
                start_new_session=True,
            )

    def _open_log(self) -> BinaryIO:
        """For appending; one that has grown large is put aside first."""
        path = self._home / LOG_FILE
        if path.exists() and path.stat().st_size > _LOG_KEPT_BYTES:
            os.replace(path, path.with_suffix(".log.1"))
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")
