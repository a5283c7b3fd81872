"""Where kernels that were compiled on this machine are kept."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """DYNOFARM_HOME/native, else dynofarm/native in the user's cache; not made yet."""
    home = os.environ.get("DYNOFARM_HOME")
    if home:
        return Path(home).expanduser() / "native"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base).expanduser() / "dynofarm" / "native"
