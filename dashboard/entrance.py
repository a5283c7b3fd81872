"""The ASGI entrance of the dashboard: gives dash the addresses that it expects, and nothing else."""

import re
from collections.abc import Iterable
from http import HTTPStatus

from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Close code of a refused websocket: policy violation.
_POLICY_VIOLATION = 1008


class Entrance:
    """Between the application that mounts the dashboard and dash's own.

    Dash compares whole paths with its prefix, so it is given paths without the prefix of the mount. The
    address of any page gives dash's one document, which finds the page by itself; every other address is
    dash's own, or does not exist: then the document shows the page that says so, with status 404.
    """

    def __init__(self, app: ASGIApp, pages: Iterable[re.Pattern[str]]) -> None:
        self._app = app
        self._pages = tuple(pages)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """HTTP only: no page uses dash's websocket, so nobody needs to reach it."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": "not used"})
            return
        prefix = scope.get("root_path", "")
        path = scope["path"].removeprefix(prefix) or "/"
        if not path.startswith(("/_", "/assets/")):
            if not any(page.fullmatch(path) for page in self._pages):
                send = _as_not_found(send)
            path = "/"
        await self._app({**scope, "path": path, "root_path": "", "raw_path": path.encode()}, receive, send)


def _as_not_found(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == HTTPStatus.OK:
            message = {**message, "status": HTTPStatus.NOT_FOUND.value}
        await send(message)

    return sent
