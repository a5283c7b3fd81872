"""An uploaded batch, parsed once: gzip, header line, event lines. Sizes are checked first."""

import zlib
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from contract.agent_api import MAX_BATCH_BYTES, EventBatchHeader
from contract.events import STREAMS_OF_TYPE, Event, EventLineError, StreamOpened, parse_event
from contract.version import ContractVersionError, require_supported
from controller.errors import BadRequestError, PayloadTooLargeError

_GZIP: Final = 16 + zlib.MAX_WBITS


@dataclass(frozen=True, slots=True)
class Batch:
    """A header and its event lines, each checked against the contract, without newlines."""

    header: EventBatchHeader
    lines: tuple[bytes, ...]


def read_batch(body: bytes, content_encoding: str, attempt_id: str) -> Batch:
    """The batch in a request's body.

    Raises PayloadTooLargeError for more than MAX_BATCH_BYTES before or after decompression, and
    BadRequestError, which names line and field, for anything that the contract does not allow. Line 1 is
    the header, so event n of the batch is line n + 1.
    """
    text = _decompressed(body, content_encoding)
    first, *lines = text.removesuffix(b"\n").split(b"\n")
    header = _header(first)
    if len(lines) != header.count:
        raise BadRequestError("/1/count", f"the header says {header.count} events, {len(lines)} lines follow")
    for offset, line in enumerate(lines):
        _check(line, offset, header, attempt_id)
    return Batch(header, tuple(lines))


def _decompressed(body: bytes, content_encoding: str) -> bytes:
    if len(body) > MAX_BATCH_BYTES:
        raise PayloadTooLargeError(MAX_BATCH_BYTES)
    if content_encoding in ("", "identity"):
        return body
    if content_encoding != "gzip":
        raise BadRequestError("", f"content encoding {content_encoding!r} is not known; send gzip")
    inflater = zlib.decompressobj(_GZIP)
    try:
        # One byte more than allowed shows that there is more, without unpacking it.
        text = inflater.decompress(body, MAX_BATCH_BYTES + 1)
    except zlib.error as error:
        raise BadRequestError("", f"the body is not valid gzip: {error}") from error
    if len(text) > MAX_BATCH_BYTES:
        raise PayloadTooLargeError(MAX_BATCH_BYTES)
    if not inflater.eof or inflater.unused_data:
        raise BadRequestError("", "the body is not one complete gzip stream; send the batch again")
    return text


def _header(line: bytes) -> EventBatchHeader:
    try:
        return EventBatchHeader.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = "/".join(str(part) for part in first["loc"])
        raise BadRequestError(f"/1/{field}", f"line 1, the batch header: {first['msg']}") from error


def _check(line: bytes, offset: int, header: EventBatchHeader, attempt_id: str) -> None:
    number = offset + 2
    try:
        event = parse_event(line)
    except EventLineError as error:
        field = error.field.replace(".", "/")
        raise BadRequestError(f"/{number}/{field}", f"line {number}: {error}") from error
    seq = header.first_seq + offset
    if event.seq != seq:
        raise BadRequestError(f"/{number}/seq", f"line {number}: seq is {event.seq}, {seq} is next")
    if header.stream not in STREAMS_OF_TYPE[event.type]:
        detail = f"line {number}: {event.type} does not belong on the stream {header.stream.value}"
        raise BadRequestError(f"/{number}/type", detail)
    if (seq == 1) != isinstance(event, StreamOpened):
        detail = f"line {number}: stream_opened must be the first event of a stream, and only that"
        raise BadRequestError(f"/{number}/type", detail)
    _check_opening(event, number, header, attempt_id)


def _check_opening(event: Event, number: int, header: EventBatchHeader, attempt_id: str) -> None:
    if not isinstance(event, StreamOpened):
        return
    try:
        require_supported(event.contract_version)
    except ContractVersionError as error:
        raise BadRequestError(f"/{number}/contract_version", f"line {number}: {error}") from error
    if event.stream is not header.stream:
        detail = f"line {number}: it opens {event.stream.value}, the batch is for {header.stream.value}"
        raise BadRequestError(f"/{number}/stream", detail)
    if event.attempt_id != attempt_id:
        detail = f"line {number}: it belongs to attempt {event.attempt_id}, not to {attempt_id}"
        raise BadRequestError(f"/{number}/attempt_id", detail)
