"""A controller for each test, on a SQLite file of its own that the migrations made."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.farm import Farm


@pytest.fixture
def anyio_backend() -> str:
    """Asynchronous tests run on asyncio, as the server does."""
    return "asyncio"


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Farm]:
    """The application with a token for each scope; no background threads."""
    made = Farm.at(tmp_path)
    yield made
    made.context.sessions.close()
