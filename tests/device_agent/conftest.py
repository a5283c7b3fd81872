"""A controller on a real socket, and the real agent beside it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.agent_process import AgentProcess
from tests.fakes.controller import FakeController
from tests.fakes.wire import served

StartAgent = Callable[..., AgentProcess]


@pytest.fixture
def start_agent(tmp_path: Path) -> Iterator[StartAgent]:
    """`start_agent(controller, **settings)`: a running agent, gone at the test's end with its runtimes."""
    with ExitStack() as stack:

        def start(controller: FakeController, **settings: Any) -> AgentProcess:
            url = stack.enter_context(served(controller))
            return stack.enter_context(AgentProcess(tmp_path, url, **settings))

        yield start
