"""One process of emulated devices for the session; unmodified clients find it by the variable they know."""

from collections.abc import Iterator

import pytest

from contract.virtual_devices import SOCKET_VARIABLE
from tests.device_agent.virtual.fleet import Fleet, running, short_folder

COUNTS = {"16.7": 36, "17.2": 3, "17.5": 5, "18.5": 28, "26.1": 9, "27.0": 13}
VERSIONS = [version for version, count in COUNTS.items() for _ in range(count)]


@pytest.fixture(scope="session")
def session_fleet() -> Iterator[Fleet]:
    arguments = (f"--count={len(VERSIONS)}", f"--ios={','.join(VERSIONS)}")
    with short_folder() as home, running(*arguments, home=home) as fleet:
        yield fleet


@pytest.fixture
def fleet(session_fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """Its devices, for clients that read the address from the environment."""
    monkeypatch.setenv(SOCKET_VARIABLE, str(session_fleet.usbmuxd_socket))
    return session_fleet
