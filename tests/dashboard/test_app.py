"""The dashboard mounted in an application: its addresses, and that it touches nothing else of it."""

import logging
import re

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from dashboard.app import PAGES, mount
from dashboard.client import FarmReader
from tests.fakes import dashboard_story as story
from tests.fakes.dashboard_rest import FakeFarm, serving
from tests.fakes.dashboard_viewer import DashboardViewer, links, text_of, viewing

RUN = story.identifier("run", 1)
HTML = "text/html"


@pytest.mark.parametrize(
    "address",
    [
        "/dashboard/",
        "/dashboard/runs",
        "/dashboard/runs/",
        f"/dashboard/runs/{RUN}",
        "/dashboard/compare?arm=paged",
    ],
)
def test_every_page_is_reached_by_its_address(viewer: DashboardViewer, address: str) -> None:
    answer = viewer.http.get(address)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith(HTML)
    assert 'id="react-entry-point"' in answer.text


def test_the_prefix_alone_leads_to_the_fleet(viewer: DashboardViewer) -> None:
    answer = viewer.http.get("/dashboard", follow_redirects=False)
    assert answer.status_code in (301, 307)
    assert answer.headers["location"].endswith("/dashboard/")


@pytest.mark.parametrize("address", ["/dashboard/nothing", "/dashboard/runs/a/b", "/dashboard/.env"])
def test_an_address_of_no_page_is_404_and_says_where_to_go(viewer: DashboardViewer, address: str) -> None:
    answer = viewer.http.get(address)
    assert answer.status_code == 404
    # The document itself, so that it looks like every other page; it shows the page of the next test.
    assert 'id="react-entry-point"' in answer.text


def test_a_wrong_link_inside_the_page_says_so_too(viewer: DashboardViewer) -> None:
    page = viewer.layout_of("/dashboard/nothing")
    assert "There is no such page" in text_of(page)
    assert links(page) == ["/dashboard/", "/dashboard/runs"]


def test_nothing_is_loaded_from_another_host(viewer: DashboardViewer) -> None:
    document = viewer.http.get("/dashboard/").text
    loaded = re.findall(r'(?:src|href)="([^"]+)"', document)
    assert loaded
    assert all(address.startswith("/dashboard/") for address in loaded), loaded
    for address in loaded:
        assert viewer.http.get(address).status_code == 200, address


def test_dash_opens_no_websocket_and_nobody_else_can(viewer: DashboardViewer) -> None:
    assert "websocket" not in viewer.http.get("/dashboard/").text.lower()
    with (
        pytest.raises(WebSocketDisconnect) as refused,
        viewer.http.websocket_connect("/dashboard/_dash-ws-callback"),
    ):
        pass
    assert refused.value.code == 1008


def test_the_application_keeps_its_own_addresses(farm: FakeFarm) -> None:
    app = FastAPI()

    @app.get("/v1/ping")
    def ping() -> str:
        return "pong"

    mount(app, farm.url)
    with TestClient(app) as http:
        assert http.get("/v1/ping").json() == "pong"
        assert http.get("/v1/nothing").json() == {"detail": "Not Found"}
        assert http.get("/runs").status_code == 404


def test_two_mounts_in_one_process_read_their_own_farms(viewer: DashboardViewer) -> None:
    other = FakeFarm(devices=[story.device("another-host")])
    with serving(other) as url, viewing(url) as second:
        for one, device in ((second, "another-host"), (viewer, "bench-host"), (second, "another-host")):
            body = one.fill("/dashboard/", "fleet-body.children")["fleet-body"]["children"]
            assert device in text_of(body)


def test_no_callback_answers_without_a_session(stranger: DashboardViewer, farm: FakeFarm) -> None:
    for address, output in (
        ("/dashboard/", "fleet-body.children"),
        ("/dashboard/runs", "runs-body.children"),
        (f"/dashboard/runs/{RUN}", "run-head.children"),
        (f"/dashboard/compare?run={RUN}&baseline={RUN}", "compare-body.children"),
    ):
        component = output.partition(".")[0]
        assert "You are not signed in." in text_of(stranger.fill(address, output)[component]["children"])
    assert farm.calls == []


def test_an_error_that_nobody_foresaw_is_logged_and_shown_without_its_text(
    viewer: DashboardViewer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(_: FarmReader) -> None:
        raise ZeroDivisionError("a secret of the server")

    monkeypatch.setattr(FarmReader, "devices", broken)
    with caplog.at_level(logging.ERROR):
        body = viewer.fill("/dashboard/", "fleet-body.children")["fleet-body"]["children"]
    assert "The dashboard made a mistake." in text_of(body)
    assert "secret" not in str(body)
    assert "dashboard_fault" in caplog.text
    assert "a secret of the server" in caplog.text


def test_a_callback_that_crashes_is_logged_and_answered_with_500(
    viewer: DashboardViewer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(**_: str) -> str:
        raise ZeroDivisionError("a secret of the server")

    monkeypatch.setattr("dashboard.pages.compare.comparison_address", broken)
    callback = next(found for found in viewer.callbacks() if found["output"] == "compare-address.search")
    with caplog.at_level(logging.ERROR), pytest.raises(AssertionError, match="InternalServerError"):
        viewer.again(callback, viewer.layout_of("/dashboard/compare"))
    assert "dashboard_fault" in caplog.text


def test_each_page_has_a_pattern_that_takes_its_own_address_only() -> None:
    addresses = ("/", "/runs", f"/runs/{RUN}", "/compare")
    taken = [[bool(page.pattern.fullmatch(address)) for page in PAGES] for address in addresses]
    assert taken == [[row == column for column in range(4)] for row in range(4)]
