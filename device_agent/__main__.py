"""`python -m device_agent --home DIR --controller URL`: the command line over the settings."""

import argparse
import os
import sys
from collections.abc import Sequence

from pydantic import ValidationError

from device_agent.floor.settings import AgentSettings
from device_agent.main import AgentExit, serve


def run(arguments: Sequence[str]) -> int:
    """The exit code; what the command line does not say comes from the environment."""
    parser = argparse.ArgumentParser(prog="device_agent", description="Serve this machine's devices.")
    parser.add_argument("--home", help="where everything is kept (default: ~/.dynofarm)")
    parser.add_argument("--controller", dest="controller_url", help="http://HOST:PORT of the controller")
    parser.add_argument("--models-dir", help="where models lie (default: HOME/models)")
    parser.add_argument(
        "--exit-with-parent", action="store_true", default=None, help="end when the parent ends"
    )
    given = {name: value for name, value in vars(parser.parse_args(arguments)).items() if value is not None}
    try:
        settings = AgentSettings(**given)
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            name = ".".join(str(part) for part in problem["loc"])
            sys.stderr.write(f"device_agent: {name}: {problem['msg']}\n")
        return AgentExit.USAGE
    code = serve(settings)
    if code is AgentExit.RESTART:
        # Same pid, fresh memory and descriptors; the runtimes are down and the home's lock is free.
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    return code


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
