"""A short program in an interpreter of its own: for what a test's own process would disturb or hang in."""

import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]


def said_by(program: str, *arguments: str, timeout_s: float = 60.0) -> str:
    """Its standard output; CalledProcessError when it fails, TimeoutExpired when it does not end."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=timeout_s,
        cwd=ROOT,
    )
    return done.stdout
