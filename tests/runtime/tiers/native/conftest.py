"""One thread unless a test wants more, and no test of kernels where they cannot be built."""

from collections.abc import Iterator

import pytest
import torch

from runtime.tiers.native.library import Kinds, why_not_here


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = why_not_here(Kinds("float32", "float32"))
    if reason is not None:
        for item in items:
            if item.path.name != "test_compiler.py" and item.path.parent.name == "native":
                item.add_marker(pytest.mark.skip(reason=reason))
