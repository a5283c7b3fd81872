"""Brings one attempt home: its streams while it runs, then its result, until the controller has taken it.

A delivery outlives its lease. It is tried without limit, across restarts; it ends when the result is
acknowledged, or refused for a reason that no retry can mend. Both are written to the folder.
"""

import asyncio
from typing import Any

import structlog

from contract.agent_api import Fence, ResultRequest
from contract.artifacts import ArtifactRef, ArtifactUpload
from contract.events.envelope import Stream
from device_agent.attempt.artifacts import kind_of
from device_agent.client import ControllerClient
from device_agent.collect.spool import Spool
from device_agent.collect.upload import Pace, StreamSender, Upload, wait_after
from device_agent.floor.attempt_folder import AttemptFolder, Settlement
from device_agent.floor.clock import wall
from device_agent.floor.errors import SpoolBehindError, SpoolFullError
from device_agent.floor.settings import AgentSettings
from rest.backoff import Backoff
from rest.errors import (
    ArtifactsMissingError,
    EventsMissingError,
    FencedError,
    LeaseGoneError,
    RefusedError,
    TokenRefusedError,
    UndecidedError,
)

_log = structlog.get_logger(__name__)


class Delivery:
    """One attempt on its way. `cancelled` turns True when an upload's answer says so."""

    def __init__(
        self, folder: AttemptFolder, spool: Spool, client: ControllerClient, settings: AgentSettings
    ) -> None:
        self.folder = folder
        self.spool = spool
        self.cancelled = False
        self.settled = folder.settlement() is not None
        self._fence: Fence = folder.grant().lease.fence
        self._client = client
        self._settings = settings
        self._concluded = asyncio.Event()
        if folder.result() is not None:
            self._concluded.set()

    def conclude(self) -> None:
        """result.json is there: send it after the events."""
        self._concluded.set()

    async def run(self) -> None:
        """Until settled. The spool is closed then, and not before."""
        try:
            if not self.settled:
                await self._deliver()
        finally:
            self.spool.close()

    async def _deliver(self) -> None:
        senders = [asyncio.create_task(self._sender(stream).run()) for stream in Stream]
        result = asyncio.create_task(self._send_result())
        try:
            done, _ = await asyncio.wait([*senders, result], return_when=asyncio.FIRST_COMPLETED)
            state = next(iter(done)).result()
        except (RefusedError, SpoolBehindError) as error:
            state = await self._refused_for_good(error)
        finally:
            await _end([*senders, result])
        await self._settle(str(state))

    def _sender(self, stream: Stream) -> StreamSender:
        upload = Upload(self._client, self.folder.attempt_id, self._fence, self.spool, self._on_cancel)
        return StreamSender(upload, stream, Pace(self._settings.upload_interval_s, self._backoff()))

    def _backoff(self) -> Backoff:
        return Backoff(self._settings.retry_first_s, self._settings.retry_cap_s)

    def _on_cancel(self) -> None:
        self.cancelled = True

    async def _send_result(self) -> str:
        """The attempt's state after the controller took the result."""
        await self._concluded.wait()
        result = self.folder.result()
        if result is None:
            raise SpoolBehindError(f"{self.folder.path} was concluded and has no result.json")
        backoff = self._backoff()
        while True:
            await self._wait_for_events()
            try:
                sent = [ref for ref in result.artifacts if await self._send_artifact(ref)]
                answer = await self._client.finish(
                    self.folder.attempt_id, result.model_copy(update={"artifacts": sent})
                )
                return answer.state
            except ArtifactsMissingError as missing_files:
                wait_s = wait_after(missing_files, backoff)
            except EventsMissingError as missing:
                wait_s = await self._rewind(missing, result, backoff)
            except (UndecidedError, TokenRefusedError) as error:
                wait_s = wait_after(error, backoff)
            await asyncio.sleep(wait_s)

    async def _send_artifact(self, ref: ArtifactRef) -> bool:
        """False when it is lost: gone from this disk, or the controller does not take this one."""
        try:
            content = await asyncio.to_thread((self.folder.artifacts_path / ref.name).read_bytes)
            about = ArtifactUpload(fence=self._fence, kind=kind_of(ref.name), sha256=ref.sha256)
            await self._client.put_artifact(self.folder.attempt_id, ref.name, about, content)
        except (TokenRefusedError, FencedError, LeaseGoneError):
            raise
        except (OSError, RefusedError) as error:
            _log.error("artifact_lost", attempt_id=self.folder.attempt_id, name=ref.name, detail=str(error))
            return False
        return True

    async def _wait_for_events(self) -> None:
        """Until every event is acknowledged; the senders do the work."""
        poll_s = self._settings.upload_interval_s / 2
        while await asyncio.to_thread(self.spool.backlog):
            await asyncio.sleep(poll_s)

    async def _rewind(self, missing: EventsMissingError, result: ResultRequest, backoff: Backoff) -> float:
        """The server was restored from a backup: send again what it lost; seconds to wait."""
        streams = [missing.stream] if missing.stream is not None else list(result.last_seq)
        for stream in streams:
            next_seq = missing.next_seq if missing.stream is not None else 1
            try:
                await asyncio.to_thread(self.spool.acknowledge, stream, next_seq)
            except SpoolFullError as error:
                return wait_after(error, backoff)
        return backoff.next_s()

    async def _refused_for_good(self, error: RefusedError | SpoolBehindError) -> str:
        """Nothing more will be taken; wait for the runtime's end, then keep the folder as evidence."""
        _log.error("delivery_refused", attempt_id=self.folder.attempt_id, detail=str(error))
        await self._concluded.wait()
        return f"refused:{error.code if isinstance(error, RefusedError) else error.kind}"

    async def _settle(self, state: str) -> None:
        backoff = self._backoff()
        while True:
            try:
                self.folder.settle(Settlement(at=wall(), state=state))
                break
            except OSError as error:
                _log.error("settlement_not_written", attempt_id=self.folder.attempt_id, detail=str(error))
                await asyncio.sleep(backoff.next_s())
        self.settled = True
        _log.info("settled", attempt_id=self.folder.attempt_id, state=state)


async def _end(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
