"""Which version of this program runs."""

from importlib.metadata import PackageNotFoundError, version


def agent_version() -> str:
    """The installed version; `unknown` when the code runs without being installed."""
    try:
        return version("dynofarm")
    except PackageNotFoundError:
        return "unknown"
