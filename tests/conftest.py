"""What holds for every test: no settings from outside, no absolute deadlines in property tests, marks that
nobody can forget."""

import os
from pathlib import Path

import hypothesis
import pytest

_E2E = Path(__file__).parent / "e2e"

# A slow machine is not a failure, and CI must find today what it found yesterday.
hypothesis.settings.register_profile("default", deadline=None, print_blob=True)
hypothesis.settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "default")


def pytest_configure() -> None:
    """A developer's own farm must not leak into the tests: settings of dynofarm come from the tests only."""
    for name in [name for name in os.environ if name.startswith("DYNOFARM_")]:
        del os.environ[name]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever lies under tests/e2e starts real processes, so it carries the mark."""
    for item in items:
        if item.path.is_relative_to(_E2E):
            item.add_marker(pytest.mark.e2e)
