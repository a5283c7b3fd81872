"""Puts the dashboard into an application: its pages under /dashboard, its data over REST.

Dash runs on a FastAPI application of its own, so that its middleware and its routes touch nothing else.
"""

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

import dash
from dash import Dash, Input, Output, dcc, html
from dash.development.base_component import Component
from fastapi import FastAPI

from contract.routes import LOGOUT_PATH
from dashboard.client import FarmClient
from dashboard.entrance import Entrance
from dashboard.pages import compare, fleet, not_found, run, runs
from dashboard.pages.addresses import COMPARE_PATH, FLEET_PATH, PREFIX, RUNS_PATH

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Page:
    """A page: dash's template of its address below the prefix, its skeleton and, if any, its callbacks."""

    name: str
    title: str
    template: str
    layout: Callable[..., Component]
    connect: Callable[[Dash, FarmClient], None] | None = None

    @property
    def pattern(self) -> re.Pattern[str]:
        """Matches the page's addresses, with or without a slash at the end."""
        return re.compile(re.sub(r"<\w+>", "[^/]+", self.template.rstrip("/")) + "/?")


PAGES: Final = (
    Page("fleet", "Fleet", "/", fleet.layout, fleet.connect),
    Page("runs", "Runs", "/runs", runs.layout, runs.connect),
    Page("run", "Run", "/runs/<run_id>", run.layout, run.connect),
    Page("compare", "Compare", "/compare", compare.layout, compare.connect),
)
# Dash shows the page of this name for an address of none, e.g. after a click on a wrong link.
_NOT_FOUND: Final = Page("not_found_404", "Not found", "/404", not_found.layout)
_NAVIGATION: Final = (("Fleet", FLEET_PATH), ("Runs", RUNS_PATH), ("Compare", COMPARE_PATH))

# Marks where the viewer is; in the browser, since it costs no request there.
_MARK_HERE: Final = """
function(pathname) {
    const here = (pathname || "").replace(/\\/+$/, "");
    const at = ["/dashboard", "/dashboard/runs", "/dashboard/compare"];
    return at.map((path, i) => (i ? here.startsWith(path) : here === path) ? "here" : "");
}
"""


def mount(app: FastAPI, base_url: str) -> None:
    """Serve the dashboard from `app` under /dashboard; it reads the REST surface at `base_url`.

    Who may see it is the business of `app`: a page shows what the viewer's session cookie may read.
    """
    app.mount(PREFIX, _entrance(FarmClient(base_url)), name="dashboard")


def _entrance(client: FarmClient) -> Entrance:
    server = FastAPI(openapi_url=None)
    pages = Dash(
        name="dashboard",
        # Dash takes an application here and asks its type; its annotation knows only a factory.
        server=cast(Any, server),
        title="dynofarm",
        # No "Updating..." in the title: it would flicker every second.
        update_title="",
        use_pages=True,
        pages_folder="",
        requests_pathname_prefix=f"{PREFIX}/",
        routes_pathname_prefix="/",
        serve_locally=True,
        # Compressing would take the processor of a machine that may just be measuring.
        compress=False,
        # The pages' parts are not in the first layout.
        suppress_callback_exceptions=True,
        add_log_handler=False,
        include_pages_meta=False,
        enable_mcp=False,
        on_error=_fault,
    )
    # Dash's document would open a socket all the same, again and again.
    pages.backend.websocket_capability = False
    for page in (*PAGES, _NOT_FOUND):
        _register(page)
        if page.connect is not None:
            page.connect(pages, client)
    pages.layout = _shell()
    pages.clientside_callback(  # type: ignore[no-untyped-call]  # dash ships it without annotations
        _MARK_HERE,
        [Output(f"go-{name.lower()}", "className") for name, _ in _NAVIGATION],
        Input("_pages_location", "pathname"),
    )
    return Entrance(server, [page.pattern for page in PAGES])


def _fault(error: Exception) -> None:
    """Dash answers 500 to an error in a callback and says nothing: the log has to."""
    _log.error("dashboard_fault", exc_info=error)
    raise error


def _register(page: Page) -> None:
    """Dash's registry of pages is one for the whole process; a second mount registers the same again."""
    has_variables = "<" in page.template
    dash.register_page(  # type: ignore[no-untyped-call]  # dash ships it without annotations
        page.name,
        name=page.title,
        title=f"{page.title} · dynofarm",
        path=None if has_variables else page.template,
        path_template=page.template if has_variables else None,
        layout=page.layout,
    )


def _log_out() -> html.Form:
    """A form and no link: leaving changes something at the controller, and no page may do it by an image."""
    return html.Form(html.Button("Log out", type="submit"), action=LOGOUT_PATH, method="POST", id="log-out")


def _shell() -> html.Div:
    """What surrounds every page."""
    links = [dcc.Link(name, href=path, id=f"go-{name.lower()}") for name, path in _NAVIGATION]
    brand = dcc.Link([html.Span("dyno"), "farm"], href=FLEET_PATH, className="brand")
    return html.Div(
        [
            html.A("Skip to the content", href="#content", className="skip"),
            html.Header([brand, html.Nav(links), _log_out()], className="bar"),
            html.Div(id="connection", role="alert", hidden=True),
            html.Main(dash.page_container, id="content"),
        ],
        className="shell",
    )
