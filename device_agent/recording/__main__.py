"""`python -m device_agent.recording --listen SOCK --upstream /var/run/usbmuxd --out DIR`: until Ctrl-C."""

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path

import structlog

from device_agent.floor.clock import monotonic_ns
from device_agent.floor.redaction import Redactor
from device_agent.recording.plaintext import read_secrets
from device_agent.recording.proxy import ListenError, ProxySettings, RecordingProxy
from device_agent.recording.recorder import MIB, Limits, Recorder

_log = structlog.get_logger(__name__)


class RecordingExit(IntEnum):
    """Exit codes. LEAKING: the file holds a secret still, or was not searched; do not share it."""

    DONE = 0
    USAGE = 2
    CANNOT_LISTEN = 3
    LEAKING = 4


def run(arguments: Sequence[str]) -> int:
    """Record until SIGINT, SIGTERM or the duration is over; the exit code."""
    options = _parser().parse_args(arguments)
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
    )
    try:
        secrets = read_secrets(options.secrets) if options.secrets else []
        started_ns = monotonic_ns()
        recorder = Recorder(
            options.out,
            f"usbmux-{datetime.now(UTC):%Y%m%d-%H%M%S}",
            Redactor(secrets),
            Limits(options.connection_mib * MIB, options.total_mib * MIB),
            lambda: (monotonic_ns() - started_ns) / 1_000_000,
        )
    except (OSError, UnicodeDecodeError) as error:
        sys.stderr.write(f"recording: {error}\n")
        return RecordingExit.USAGE
    settings = ProxySettings(options.listen.absolute(), options.upstream)
    try:
        asyncio.run(_serve(settings, recorder, options.duration_s))
    except ListenError as error:
        sys.stderr.write(f"recording: {error}\n")
        return RecordingExit.CANNOT_LISTEN
    finally:
        leaking = _finish(recorder)
    return RecordingExit.LEAKING if leaking else RecordingExit.DONE


def _finish(recorder: Recorder) -> bool:
    """Whether secrets stand in the file, or may: the second pass over it was not to be had."""
    try:
        counts = recorder.finish()
    except OSError as error:
        sys.stderr.write(
            f"recording: {recorder.path} was not searched for secrets: {error}; do not share it\n"
        )
        return True
    _log.info(
        "recorded",
        transcript=str(recorder.path),
        leaks=counts.leaks,
        secrets=counts.secrets,
        lines_lost=counts.lines_lost,
    )
    return bool(counts.leaks)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="device_agent.recording", description="Record what passes to usbmuxd, without identifiers."
    )
    parser.add_argument("--listen", type=Path, required=True, help="socket to serve")
    parser.add_argument("--upstream", default="/var/run/usbmuxd", help="usbmuxd: a path, or HOST:PORT")
    parser.add_argument("--out", type=Path, required=True, help="folder of the recording")
    parser.add_argument("--secrets", type=Path, help="file with further secrets, one a line (Wi-Fi, names)")
    parser.add_argument("--duration-s", type=_positive, default=4 * 3600.0, help="end after this long")
    parser.add_argument("--connection-mib", type=_count, default=8, help="most that is kept of a connection")
    parser.add_argument("--total-mib", type=_count, default=256, help="most that is kept of all")
    return parser


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value <= 86_400:
        raise argparse.ArgumentTypeError("give seconds between 0 and 86400")
    return value


def _count(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 4096:
        raise argparse.ArgumentTypeError("give a whole number from 1 to 4096")
    return value


async def _serve(settings: ProxySettings, recorder: Recorder, duration_s: float) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with RecordingProxy(settings, recorder):
        _log.info("recording", listen=str(settings.listen), upstream=settings.upstream)
        try:
            async with asyncio.timeout(duration_s):
                await stop.wait()
        except TimeoutError:
            _log.info("duration_over", duration_s=duration_s)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
