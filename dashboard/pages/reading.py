"""The border of every callback: the viewer's cookie in, what was found out, what failed as a notice."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from dash import ctx, html

from contract.headers import SESSION_COOKIE
from dashboard.client import FarmClient, FarmReader
from dashboard.errors import DashboardError
from dashboard.parts.panels import error_notice, fault_notice

_log = logging.getLogger(__name__)

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Failed:
    """Nothing was found; `notice` stands in its place. will_pass: asking again may help."""

    notice: html.Div
    will_pass: bool


async def read(client: FarmClient, ask: Callable[[FarmReader], Awaitable[Found]]) -> Found | Failed:
    """What `ask` finds on the farm as the viewer may see it.

    Must be called inside a dash callback: the cookie is that of its request.
    """
    try:
        async with client.reading_as(ctx.cookies.get(SESSION_COOKIE)) as reader:
            return await ask(reader)
    except DashboardError as error:
        return Failed(error_notice(error), error.will_pass)
    except Exception:
        # The last border before the browser: without this a page would say "loading" for ever.
        _log.exception("dashboard_fault")
        return Failed(fault_notice(), will_pass=True)
