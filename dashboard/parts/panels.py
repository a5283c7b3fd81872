"""Frames of pages: heads, panels, tiles, and the notices that stand where data should be."""

from collections.abc import Sequence
from typing import Final, Literal

import plotly.graph_objects as go
from dash import dcc, html
from dash.development.base_component import Component

from dashboard.errors import DashboardError

SIGN_IN_PATH = "/login?next=/dashboard/"
"""assets/connection.js puts the page that the viewer is on into `next`."""


def page_head(title: str, lead: Component | str) -> html.Header:
    """The page's only first-level heading and a line under it."""
    return html.Header([html.H1(title), html.P(lead, className="lead")], className="page-head")


def panel(title: str, children: Sequence[Component | str], class_name: str = "wide") -> html.Section:
    """A titled card; "wide" takes the whole row of a grid."""
    return html.Section([html.H2(title), *children], className=f"panel {class_name}".strip())


def grid(children: Sequence[Component]) -> html.Div:
    """Cards beside each other where the screen is wide enough."""
    return html.Div(list(children), className="grid")


def tile(label: str, value: str, note: str = "") -> html.Div:
    """One headline figure."""
    return html.Div(
        [
            html.Div(label, className="tile-label"),
            html.Div(value, className="tile-value"),
            html.Div(note, className="tile-note"),
        ],
        className="tile",
    )


# Without plotly's buttons, which hide what is under them on a small screen.
_CONFIG: Final[dcc.Graph.Config] = {"displayModeBar": False, "scrollZoom": False}


def graph(figure: go.Figure) -> html.Div:
    """A figure in a card."""
    return html.Div(dcc.Graph(figure=figure, config=_CONFIG), className="panel figure")


def live_graph(figure: go.Figure, graph_id: str) -> html.Div:
    """A figure in a card that a callback draws again."""
    return html.Div(dcc.Graph(id=graph_id, figure=figure, config=_CONFIG), className="panel figure")


def notice(
    kind: Literal["empty", "error", "hint"], headline: str, body: Sequence[Component | str]
) -> html.Div:
    """What stands where data should be: what is the matter, and what to do."""
    role = "alert" if kind == "error" else "status"
    return html.Div([html.H2(headline), html.P(list(body))], className=f"notice notice-{kind}", role=role)


def loading(what: str) -> html.Div:
    """Shown until the first answer; the hint appears only when that takes long."""
    return html.Div(
        [
            html.P(f"Loading {what} …"),
            html.P(
                "This takes longer than usual. If nothing appears within ten seconds, reload the page.",
                className="late",
            ),
        ],
        className="notice notice-loading",
        role="status",
    )


def error_notice(error: DashboardError) -> html.Div:
    """An error's headline and advice, with the way to the sign-in page where that helps."""
    body: list[Component | str] = [error.advice]
    if error.by_signing_in:
        body += [" ", html.A("Sign in", href=SIGN_IN_PATH, className="sign-in")]
    return notice("error", error.headline, body)


def fault_notice() -> html.Div:
    """For an error that nobody foresaw: the log has it."""
    return notice(
        "error",
        "The dashboard made a mistake.",
        ["The controller's log has it under dashboard_fault. Reload the page; if it stays, report it."],
    )


def command(text: str) -> html.Code:
    """Something to type."""
    return html.Code(text)
