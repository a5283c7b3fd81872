"""Where runtimes listen: a Unix-domain address has about 100 bytes, and only this user may enter."""

import hashlib
import os
import stat
import tempfile
from pathlib import Path

from contract.ids import AttemptId
from device_agent.floor.errors import LaunchError

MAX_SOCKET_PATH_BYTES = 99
_NAME_CHARS = 16


def socket_name(attempt_id: AttemptId) -> str:
    """Short and the attempt's own: the random end of its id."""
    return f"{attempt_id[-_NAME_CHARS:].lower()}.s"


def socket_folder(agent_home: Path) -> Path:
    """A 0700 folder of this user whose sockets have short paths; the same for the same home.

    In the home when that is short enough, else in the system's folder for temporary files.
    LaunchError when that folder exists and belongs to someone else.
    """
    inside = agent_home / "sockets"
    if _fits(inside):
        folder = inside
    else:
        digest = hashlib.sha256(os.fsencode(agent_home)).hexdigest()[:12]
        folder = Path(tempfile.gettempdir()) / f"dynofarm-{os.getuid()}-{digest}"
        if not _fits(folder):
            folder = Path("/tmp") / folder.name
    folder.mkdir(mode=0o700, exist_ok=True)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise LaunchError(f"{folder} belongs to someone else; remove it or choose another DYNOFARM_HOME")
    if stat.S_IMODE(found.st_mode) != 0o700:
        os.chmod(folder, 0o700)
    return folder


def _fits(folder: Path) -> bool:
    return len(os.fsencode(folder)) + 1 + _NAME_CHARS + 2 <= MAX_SOCKET_PATH_BYTES
