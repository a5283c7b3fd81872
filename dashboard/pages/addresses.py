"""Addresses of pages. Links must name the prefix, since a browser resolves them without dash."""

from typing import Final
from urllib.parse import urlencode

PREFIX: Final = "/dashboard"
FLEET_PATH: Final = f"{PREFIX}/"
RUNS_PATH: Final = f"{PREFIX}/runs"
RUN_PATH: Final = f"{PREFIX}/runs/{{run_id}}"
COMPARE_PATH: Final = f"{PREFIX}/compare"


def older_runs(page_token: str) -> str:
    """The page of runs that begins after this one."""
    return f"{RUNS_PATH}?{urlencode({'page_token': page_token})}"


def comparison(**chosen: str) -> str:
    """The comparison of what was chosen; an empty choice is left out."""
    return f"{COMPARE_PATH}?{urlencode({name: value for name, value in chosen.items() if value})}"
