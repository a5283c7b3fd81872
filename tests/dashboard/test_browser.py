"""The pages in a real browser: drawn without an error, under the controller's content policy, two widths."""

import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import uvicorn
from fastapi import FastAPI, Request
from playwright.sync_api import Browser, Page, sync_playwright
from starlette.middleware.base import RequestResponseEndpoint
from starlette.responses import Response

from contract.headers import SESSION_COOKIE
from dashboard.app import mount
from tests.fakes import dashboard_story as story
from tests.fakes.dashboard_rest import SESSION, FakeFarm

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the PATH: apt-get install chromium")

WIDTHS = {"wide": 1280, "middle": 768, "narrow": 390}
DEADLINE_MS = 60_000
RUN, OTHER = story.identifier("run", 1), story.identifier("run", 2)
# As the controller sends it for the dashboard.
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; frame-ancestors 'none'; base-uri 'self'; "
    "form-action 'self'"
)
PAGES = {
    "fleet": ("/dashboard/", "#fleet-body .table", 0),
    "runs": ("/dashboard/runs", "#runs-body .table", 0),
    "run": (f"/dashboard/runs/{RUN}", "#run-report .gate", 3),
    "compare": (f"/dashboard/compare?run={RUN}&baseline={OTHER}&arm=paged", "#compare-body .table", 1),
}


# Classes of what can only be read by scrolling sideways.
TOO_WIDE = """
    [document.documentElement, ...document.querySelectorAll('.table-frame')]
        .filter(box => box.scrollWidth > box.clientWidth).map(box => box.className || 'page')
"""


@dataclass
class Site:
    """The dashboard as a server of its own. refuse_with: status that updates get instead of an answer."""

    url: str = ""
    refuse_with: int | None = None
    complaints: list[str] = field(default_factory=list)


@contextmanager
def _serving(farm: FakeFarm) -> Iterator[Site]:
    site, app = Site(), FastAPI()

    @app.middleware("http")
    async def surround(request: Request, call_next: RequestResponseEndpoint) -> Response:
        if request.method == "POST" and site.refuse_with is not None:
            return Response(status_code=site.refuse_with)
        response = await call_next(request)
        response.headers["Content-Security-Policy"] = POLICY
        return response

    mount(app, farm.url)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        site.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            yield site
        finally:
            server.should_exit = True
            thread.join(timeout=10)


@pytest.fixture
def site(farm: FakeFarm) -> Iterator[Site]:
    with _serving(farm) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Without its sandbox, since a container's root may not make one; the pages are our own.
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


def _open(browser: Browser, site: Site, width: int = 1280) -> Page:
    """A page of a viewer who is signed in; whatever it complains of is kept."""
    context = browser.new_context(viewport={"width": width, "height": 900})
    context.add_cookies([{"name": SESSION_COOKIE, "value": SESSION, "url": site.url}])
    context.set_default_timeout(DEADLINE_MS)
    page = context.new_page()
    page.on("pageerror", lambda error: site.complaints.append(str(error)))
    page.on(
        "console",
        lambda said: site.complaints.append(said.text) if said.type in ("error", "warning") else None,
    )
    page.on(
        "request",
        lambda asked: None if _is_own(asked.url, site) else site.complaints.append(f"asked for {asked.url}"),
    )
    return page


def _is_own(address: str, site: Site) -> bool:
    return address.startswith((site.url, "data:", "blob:"))


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS.keys())
def test_every_page_is_drawn_without_complaint_and_fits_its_width(
    browser: Browser, site: Site, width: int, tmp_path: Path
) -> None:
    page = _open(browser, site, width)
    for name, (address, ready, figures) in PAGES.items():
        page.goto(site.url + address)
        page.wait_for_selector(ready)
        page.wait_for_function(f"document.querySelectorAll('.js-plotly-plot .gtitle').length >= {figures}")
        assert page.evaluate(TOO_WIDE) == [], name
        picture = tmp_path / f"{name}-{width}.png"
        page.screenshot(path=picture, full_page=True)
        assert picture.stat().st_size > 10_000, name
    page.context.close()
    assert site.complaints == []


def test_a_live_run_is_followed_until_it_is_completed(browser: Browser, site: Site, farm: FakeFarm) -> None:
    farm.runs = [story.live_run(1)]
    page = _open(browser, site)
    page.goto(f"{site.url}/dashboard/runs/{RUN}")
    page.wait_for_function("document.querySelectorAll('#run-live .gtitle').length === 4")
    farm.lives[RUN] = story.live_view(1, trials_done=9, trial=10)
    page.wait_for_selector("text=9 of 14 trials done")
    farm.runs = [story.done_run(1)]
    page.wait_for_selector("#run-report .gate")
    page.wait_for_selector("#run-live", state="hidden")
    page.context.close()
    assert site.complaints == []


def test_a_viewer_is_told_when_the_page_cannot_follow_and_it_goes_on_by_itself(
    browser: Browser, site: Site, farm: FakeFarm
) -> None:
    farm.runs = [story.live_run(1)]
    page = _open(browser, site)
    page.goto(f"{site.url}/dashboard/runs/{RUN}")
    page.wait_for_selector("#run-head h1")
    site.refuse_with = 401
    link = page.wait_for_selector("#connection a")
    assert link is not None
    assert link.get_attribute("href") == f"/login?next=%2Fdashboard%2Fruns%2F{RUN}"
    site.refuse_with = None
    page.wait_for_selector("#connection", state="hidden")
    page.context.set_offline(True)
    page.wait_for_selector("#connection:has-text('does not answer')")
    page.context.set_offline(False)
    page.wait_for_selector("#connection", state="hidden")
    page.context.close()
