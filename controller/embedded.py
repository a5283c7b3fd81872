"""`python -m controller.embedded`, the heart of `dynofarm up`: the whole farm of one machine in one process.

SQLite in the home folder, background work in threads, the dashboard beside the API, and this machine's device
agent as a child process. A second instance on the same home is refused. Ctrl-C takes everything down.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import structlog
import uvicorn
from filelock import FileLock, Timeout
from pydantic import ValidationError

from contract.home import ControllerFile, HomeFolder
from controller.admin_token import enrolment_token, ensure_admin_token
from controller.agent_child import AgentChild
from controller.api.context import ApiContext
from controller.app import create_app
from controller.db.migrate import upgrade
from controller.errors import FarmError
from controller.listening import AddressError, bind
from controller.logs import configure_logs
from controller.serving import UvicornServer
from controller.settings import Settings, wrong_settings

EXIT_USAGE: Final = 2
LOCK_FILE: Final = "controller.lock"

_log = structlog.get_logger(__name__)


def main(arguments: Sequence[str]) -> int:
    """The exit code: 0 after a clean stop, 2 for a wrong setting or when the home or the port is taken."""
    parser = argparse.ArgumentParser(prog="controller.embedded", description="The farm of one machine.")
    parser.add_argument("--home", help="where everything is kept (default: DYNOFARM_HOME or ~/.dynofarm)")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0 takes any free port")
    parser.add_argument("--no-agent", action="store_true", help="start no device agent on this machine")
    parsed = parser.parse_args(arguments)
    try:
        settings = _settings(parsed.home, parsed.host, parsed.port)
    except ValidationError as error:
        sys.stderr.writelines(f"controller: {problem}\n" for problem in wrong_settings(error))
        return EXIT_USAGE
    configure_logs(settings.log_level)
    settings.home_path.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with FileLock(settings.home_path / LOCK_FILE, timeout=0):
            return _serve(settings, with_agent=not parsed.no_agent)
    except Timeout:
        sys.stderr.write(f"controller: {_who_is_here(settings.home_path)}\n")
    except (AddressError, FarmError) as error:
        sys.stderr.write(f"controller: {error}\n")
    return EXIT_USAGE


def _settings(home: str | None, host: str, port: int) -> Settings:
    """Embedded is what it says: the database lies in the home, the broker in this process."""
    settings = Settings(host=host, port=port, database_url="", broker_url="memory://")
    chosen = Path(home) if home else settings.home
    return settings.model_copy(update={"home": chosen.expanduser().absolute()})


def _serve(settings: Settings, *, with_agent: bool) -> int:
    sock = bind(settings.host, settings.port)
    settings = settings.model_copy(update={"port": sock.getsockname()[1]})
    upgrade(settings.resolved_database_url)
    app = create_app(settings)
    context: ApiContext = app.state.context
    ensure_admin_token(context, settings.home_path)
    farm = _EmbeddedFarm(context, with_agent=with_agent)
    server = UvicornServer(uvicorn.Config(app, log_config=None, access_log=False, server_header=False))
    try:
        server.serve_until_stopped(sock, on_stop=context.waiting_claims.close, beside=farm.run)
    finally:
        HomeFolder(settings.home_path).controller_file.unlink(missing_ok=True)
    return 0


class _EmbeddedFarm:
    """What lives beside the server: the state file, and the device agent."""

    def __init__(self, context: ApiContext, *, with_agent: bool) -> None:
        self._context = context
        self._with_agent = with_agent

    async def run(self) -> None:
        """Until cancelled; then the child is down."""
        settings = self._context.settings
        url = settings.local_url
        _write_state(settings.home_path, url)
        _log.info("ready", url=url, home=str(settings.home_path))
        if not self._with_agent:
            return
        child = AgentChild(settings.home_path, url, lambda: enrolment_token(self._context))
        try:
            await child.keep_running()
        finally:
            await asyncio.shield(child.stop())


def _write_state(home: Path, url: str) -> None:
    """Written whole beside it and moved: whoever waits for the file never reads half of it."""
    path = HomeFolder(home).controller_file
    beside = path.with_suffix(".new")
    beside.write_text(ControllerFile(url=url, pid=os.getpid()).model_dump_json() + "\n", encoding="utf-8")
    os.replace(beside, path)


def _who_is_here(home: Path) -> str:
    """Tells of the instance that has the home."""
    try:
        found = ControllerFile.model_validate_json(HomeFolder(home).controller_file.read_bytes())
        where = f" at {found.url} (pid {found.pid})"
    except (OSError, ValidationError):
        where = ""
    advice = "use that one, stop it, or choose another --home"
    return f"a controller already runs with the home {home}{where}; {advice}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
