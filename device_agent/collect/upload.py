"""Sends one stream of one attempt: batch after batch from the spool, until told that nothing more comes."""

import asyncio
import gzip
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from contract.agent_api import MAX_BATCH_BYTES, EventBatchHeader, Fence
from contract.events.envelope import Stream
from contract.ids import AttemptId
from device_agent.client import ControllerClient
from device_agent.collect.spool import Batch, Spool
from device_agent.floor.clock import wall
from device_agent.floor.errors import AgentError, SpoolFullError
from rest.backoff import Backoff
from rest.errors import (
    EventsGapError,
    PayloadTooLargeError,
    RestError,
    TokenRefusedError,
    UndecidedError,
)

_log = structlog.get_logger(__name__)

MAX_BATCH_LINES = 10_000
# The header line counts too; it is far below this.
_HEADER_BYTES = 1024
# Live figures need no better, and deflate's cost grows with the level.
_GZIP_LEVEL = 1


@dataclass(slots=True)
class Pace:
    """How fast to send. interval_s: least time between batches; the server may ask for more."""

    interval_s: float
    backoff: Backoff


@dataclass(frozen=True, slots=True)
class Upload:
    """What is sent, for whom, and whom to tell of a directive."""

    client: ControllerClient
    attempt_id: AttemptId
    fence: Fence
    spool: Spool
    on_cancel: Callable[[], None]


@dataclass(slots=True)
class StreamSender:
    """One sender per stream, so that a batch is never overtaken by a later one."""

    upload: Upload
    stream: Stream
    pace: Pace
    _max_batch_bytes: int = field(default=MAX_BATCH_BYTES - _HEADER_BYTES)

    async def run(self) -> None:
        """Send for ever; raises only what no retry can mend (a refusal, or a spool behind its server)."""
        while True:
            await asyncio.sleep(await self.send_next())

    async def send_next(self) -> float:
        """Send one batch if there is one; seconds to wait before the next call."""
        batch = await asyncio.to_thread(
            self.upload.spool.next_batch, self.stream, self._max_batch_bytes, MAX_BATCH_LINES
        )
        if batch is None:
            return self.pace.interval_s
        try:
            wait_s = await self._send(batch)
        except EventsGapError as gap:
            _log.info("rewind", attempt_id=self.upload.attempt_id, stream=self.stream, next_seq=gap.next_seq)
            await asyncio.to_thread(self.upload.spool.acknowledge, self.stream, gap.next_seq)
            # A server that restarts again and again must not be answered in a tight loop.
            return self.pace.backoff.next_s()
        except PayloadTooLargeError:
            if len(batch.lines) == 1:
                raise
            self._max_batch_bytes = max(1, self._max_batch_bytes // 2)
            return 0.0
        except (UndecidedError, TokenRefusedError, SpoolFullError) as error:
            return wait_after(error, self.pace.backoff)
        self.pace.backoff.reset()
        return wait_s

    async def _send(self, batch: Batch) -> float:
        upload = self.upload
        body = await asyncio.to_thread(packed, batch, upload.fence)
        answer = await upload.client.upload(upload.attempt_id, body)
        await asyncio.to_thread(upload.spool.acknowledge, self.stream, answer.next_seq)
        if answer.directive == "cancel":
            upload.on_cancel()
        return max(answer.min_interval_s, self.pace.interval_s)


def packed(batch: Batch, fence: Fence) -> bytes:
    """gzip of NDJSON: an EventBatchHeader line, then the batch's lines."""
    header = EventBatchHeader(
        stream=batch.stream,
        first_seq=batch.first_seq,
        count=len(batch.lines),
        fence=fence,
        sent_at=wall(),
    )
    text = b"\n".join((header.model_dump_json().encode(), *batch.lines, b""))
    return gzip.compress(text, compresslevel=_GZIP_LEVEL)


def wait_after(error: RestError | AgentError, backoff: Backoff) -> float:
    """Seconds to wait before the same call again: what the server asked for, else the next of the back-off.

    A refused token waits the longest: only a person can help, and asking often helps nobody.
    """
    if isinstance(error, TokenRefusedError):
        return backoff.cap_s
    asked_s = error.retry_after_s if isinstance(error, RestError) else None
    return backoff.next_s() if asked_s is None else max(asked_s, backoff.next_s())
