"""Watches the lease while the engine works: past its deadline nothing may run here.

The engine asks `check` between steps. If it does not come back in time, because a step hangs, the watchdog
ends the process itself: by then the device may belong to somebody else.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from contract.runtime_link import LeaseFile
from runtime.errors import LeaseExpiredError, RuntimeFault
from runtime.measured.errors import AttemptFolderError, CancelledError

POLL_INTERVAL_S = 0.5
HANG_S = 10.0
"""How long after the deadline the engine may take to notice it."""
_WAIT_SLICE_S = 0.05


def read_lease(path: Path) -> LeaseFile:
    """The lease as the device agent last wrote it; AttemptFolderError when it is missing or no lease."""
    try:
        return LeaseFile.model_validate_json(path.read_bytes())
    except OSError as error:
        raise AttemptFolderError(path, f"the lease cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise AttemptFolderError(path, f"the lease is not valid: {where}: {first['msg']}") from error


class Watchdog:
    """Follows the lease file from construction on; AttemptFolderError when there is no lease to begin with.

    `on_hang` is called once, from the watchdog's thread, when the deadline passed `hang_s` ago and `close`
    has not been called.
    """

    def __init__(
        self,
        path: Path,
        on_hang: Callable[[], None],
        poll_interval_s: float = POLL_INTERVAL_S,
        hang_s: float = HANG_S,
    ) -> None:
        self._path = path
        self._on_hang = on_hang
        self._poll_interval_s = poll_interval_s
        self._hang_ns = round(hang_s * 1e9)
        self._cancelled = False
        self._renewal: int | None = None
        self._deadline_ns = 0
        self._take(read_lease(path))
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="lease-watchdog", daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """As if the lease's directive were cancel; takes no lock, so a signal handler may call it."""
        self._cancelled = True

    def check(self) -> None:
        """Returns while the attempt may go on; LeaseExpiredError or CancelledError otherwise."""
        stop = self._reason_to_stop()
        if stop is not None:
            raise stop

    def wait(self, timeout_s: float) -> None:
        """Waits, but not longer than until there is a reason to stop; then like `check`."""
        deadline_s = time.monotonic() + timeout_s
        while (left_s := deadline_s - time.monotonic()) > 0 and self._reason_to_stop() is None:
            time.sleep(min(left_s, _WAIT_SLICE_S))
        self.check()

    def close(self) -> None:
        """The engine has ended: nothing hangs any more."""
        self._closed.set()
        self._thread.join(5.0)

    def _reason_to_stop(self) -> RuntimeFault | None:
        late_ns = time.monotonic_ns() - self._deadline_ns
        if late_ns >= 0:
            return LeaseExpiredError(f"the lease ended {late_ns / 1e9:.1f} s ago and was not renewed")
        return CancelledError("somebody asked for it") if self._cancelled else None

    def _take(self, lease: LeaseFile) -> None:
        """A lease from another machine says how long, not until when: counted from the first look at it."""
        if lease.ttl_s is None:
            self._deadline_ns = lease.deadline_mono_ns
        elif lease.renewal != self._renewal:
            self._deadline_ns = time.monotonic_ns() + round(lease.ttl_s * 1e9)
            self._renewal = lease.renewal
        if lease.directive == "cancel":
            self._cancelled = True

    def _watch(self) -> None:
        while not self._closed.wait(self._poll_interval_s):
            # A lease that cannot be read is not a longer lease: the last deadline stays.
            with contextlib.suppress(AttemptFolderError):
                self._take(read_lease(self._path))
            if time.monotonic_ns() - self._deadline_ns > self._hang_ns:
                self._on_hang()
                return
