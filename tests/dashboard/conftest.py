"""A farm with a device and two completed runs, and a viewer who is signed in."""

from collections.abc import Iterator

import pytest

from tests.fakes import dashboard_story as story
from tests.fakes.dashboard_rest import FakeFarm, serving
from tests.fakes.dashboard_viewer import DashboardViewer, viewing


@pytest.fixture
def farm() -> Iterator[FakeFarm]:
    """Served over real HTTP."""
    runs = [story.done_run(1), story.done_run(2)]
    farm = FakeFarm(
        devices=[story.device()],
        runs=runs,
        lives={run.run_id: story.live_view(number) for number, run in enumerate(runs, 1)},
        reports={run.run_id: story.run_report(number) for number, run in enumerate(runs, 1)},
        comparison=story.comparison(),
    )
    with serving(farm):
        yield farm


@pytest.fixture
def viewer(farm: FakeFarm) -> Iterator[DashboardViewer]:
    """Signed in."""
    with viewing(farm.url) as signed_in:
        yield signed_in


@pytest.fixture
def stranger(farm: FakeFarm) -> Iterator[DashboardViewer]:
    """Not signed in."""
    with viewing(farm.url, session=None) as nobody:
        yield nobody
