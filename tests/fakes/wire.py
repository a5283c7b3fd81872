"""Two ways to reach a FakeController: inside the process, and over a real socket."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

from tests.fakes.controller import FakeController


def transport(controller: FakeController) -> httpx.MockTransport:
    """For httpx clients in the test's own process; a lost request or answer is a read error."""

    async def answer(request: httpx.Request) -> httpx.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        body = await request.aread()
        target = request.url.raw_path.decode()
        found = await asyncio.to_thread(controller.handle, request.method, target, headers, body)
        if found is None:
            raise httpx.ReadError("lost", request=request)
        return httpx.Response(found.status, content=found.body, headers={"Content-Type": found.media_type})

    return httpx.MockTransport(answer)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    controller: FakeController

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        found = self.controller.handle(self.command, self.path, headers, body)
        if found is None:
            self.close_connection = True
            return
        self.send_response(found.status)
        self.send_header("Content-Type", found.media_type)
        self.send_header("Content-Length", str(len(found.body)))
        self.end_headers()
        self.wfile.write(found.body)

    do_POST = do_PUT = _serve  # noqa: N815 - the names that http.server calls

    def log_message(self, *_: object) -> None:
        """Tests are quiet."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """An agent that was killed leaves broken connections; that is not this server's error."""


@contextmanager
def served(controller: FakeController) -> Iterator[str]:
    """The URL of a real server on a free port of this machine."""
    handler = type("Handler", (_Handler,), {"controller": controller})
    with _Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join(timeout=10)
