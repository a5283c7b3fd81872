"""`python -m controller`: the API server. `python -m controller migrate` brings the database up to date.

The command line says where to listen; everything else are settings (DYNOFARM_*).
"""

import argparse
import sys
from collections.abc import Sequence

import uvicorn
from pydantic import ValidationError

from controller.app import create_app
from controller.db.migrate import upgrade
from controller.listening import AddressError, bind
from controller.logs import configure_logs
from controller.serving import UvicornServer
from controller.settings import Settings

EXIT_USAGE = 2


def main(arguments: Sequence[str]) -> int:
    """The exit code: 0 after a clean stop, 2 for a wrong setting or an address that cannot be had."""
    parser = argparse.ArgumentParser(prog="controller", description="Serve the dynofarm API.")
    parser.add_argument("command", nargs="?", choices=("serve", "migrate"), default="serve")
    parser.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on (default: 8000; 0: any free one)")
    parsed = parser.parse_args(arguments)
    given = {name: getattr(parsed, name) for name in ("host", "port") if getattr(parsed, name) is not None}
    try:
        settings = Settings(**given)
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            name = ".".join(str(part) for part in problem["loc"])
            sys.stderr.write(f"controller: {name}: {problem['msg']}\n")
        return EXIT_USAGE
    configure_logs(settings.log_level)
    if parsed.command == "migrate":
        upgrade(settings.resolved_database_url)
        return 0
    return _serve(settings)


def _serve(settings: Settings) -> int:
    try:
        sock = bind(settings.host, settings.port)
    except AddressError as error:
        sys.stderr.write(f"controller: {error}\n")
        return EXIT_USAGE
    app = create_app(settings.model_copy(update={"port": sock.getsockname()[1]}))
    server = UvicornServer(uvicorn.Config(app, log_config=None, access_log=False, server_header=False))
    server.serve_until_stopped(sock, on_stop=app.state.context.bell.close)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
