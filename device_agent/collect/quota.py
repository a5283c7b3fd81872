"""What a full spool still takes: log is dropped first, then samples are thinned, control never."""

from typing import Final

from contract.events.envelope import Stream

_LOG_SHARE: Final = 0.8
_SAMPLES_SHARE: Final = 0.9
KEEP_ONE_SAMPLE_OF: Final = 10


def keeps(stream: Stream, source_seq: int, used_bytes: int, quota_bytes: int) -> bool:
    """Whether an event is kept when used_bytes of the quota are taken. The opening event always is."""
    if source_seq == 1 or stream in (Stream.CONTROL, Stream.DEVICE_AGENT):
        return True
    if stream is Stream.LOG:
        return used_bytes < _LOG_SHARE * quota_bytes
    if used_bytes < _SAMPLES_SHARE * quota_bytes:
        return True
    return used_bytes < quota_bytes and source_seq % KEEP_ONE_SAMPLE_OF == 0
