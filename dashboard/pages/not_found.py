"""What stands at an address that is not a page."""

from dash import dcc, html
from dash.development.base_component import Component

from dashboard.pages.addresses import FLEET_PATH, RUNS_PATH
from dashboard.parts.panels import page_head


def layout(**_: object) -> html.Div:
    """The ways back."""
    links: list[Component | str] = [
        "Go to the ",
        dcc.Link("fleet", href=FLEET_PATH),
        " or the ",
        dcc.Link("runs", href=RUNS_PATH),
        ".",
    ]
    return html.Div([page_head("There is no such page", html.Span(links))])
