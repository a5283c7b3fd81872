"""`python -m controller`: the API server. `migrate` brings the database up to date, `admin-token` writes an
admin's token into the home folder: the first key to a new farm, and a new one when it was lost.

The command line says where to listen; everything else are settings (DYNOFARM_*).
"""

import argparse
import sys
from collections.abc import Sequence

import uvicorn
from pydantic import ValidationError
from sqlalchemy.engine import make_url

from controller.admin_token import ensure_admin_token
from controller.app import create_app
from controller.db.migrate import upgrade
from controller.errors import FarmError
from controller.listening import AddressError, bind
from controller.logs import configure_logs
from controller.serving import UvicornServer
from controller.settings import Settings, wrong_settings

EXIT_USAGE = 2


def main(arguments: Sequence[str]) -> int:
    """The exit code: 0 after a clean stop, 2 for a wrong setting or an address that cannot be had."""
    parser = argparse.ArgumentParser(prog="controller", description="Serve the dynofarm API.")
    parser.add_argument("command", nargs="?", choices=tuple(_COMMANDS), default="serve")
    parser.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on (default: 8000; 0: any free one)")
    parsed = parser.parse_args(arguments)
    given = {name: getattr(parsed, name) for name in ("host", "port") if getattr(parsed, name) is not None}
    try:
        settings = Settings(**given)
    except ValidationError as error:
        sys.stderr.writelines(f"controller: {problem}\n" for problem in wrong_settings(error))
        return EXIT_USAGE
    configure_logs(settings.log_level)
    try:
        settings.home_path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _COMMANDS[parsed.command](settings)
    except FarmError as error:
        shown = make_url(settings.resolved_database_url).render_as_string(hide_password=True)
        sys.stderr.write(f"controller: {error} (DYNOFARM_DATABASE_URL: {shown})\n")
    except OSError as error:
        sys.stderr.write(f"controller: {error}; choose another DYNOFARM_HOME\n")
    return EXIT_USAGE


def _migrate(settings: Settings) -> int:
    upgrade(settings.resolved_database_url)
    return 0


def _write_admin_token(settings: Settings) -> int:
    """Tells where the token lies; the token itself is never printed."""
    path = ensure_admin_token(create_app(settings).state.context, settings.home_path)
    sys.stderr.write(f"controller: an admin's token is in {path}\n")
    return 0


def _serve(settings: Settings) -> int:
    try:
        sock = bind(settings.host, settings.port)
    except AddressError as error:
        sys.stderr.write(f"controller: {error}\n")
        return EXIT_USAGE
    app = create_app(settings.model_copy(update={"port": sock.getsockname()[1]}))
    server = UvicornServer(uvicorn.Config(app, log_config=None, access_log=False, server_header=False))
    server.serve_until_stopped(sock, on_stop=app.state.context.waiting_claims.close)
    return 0


_COMMANDS = {"serve": _serve, "migrate": _migrate, "admin-token": _write_admin_token}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
