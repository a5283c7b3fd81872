"""A PostgreSQL server of our own for a test: in a folder, on a Unix socket, gone afterwards."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import create_engine, text


def find_binaries() -> Path | None:
    """The folder with initdb and pg_ctl of the newest version installed; None without PostgreSQL."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    found = installed[-1] if installed else shutil.which("initdb")
    return Path(found).resolve().parent if found else None


@dataclass(frozen=True)
class Server:
    """Running; each database is made empty."""

    folder: Path

    def fresh_database(self, name: str) -> str:
        """The URL of a new, empty database."""
        admin = create_engine(self._url("postgres"), isolation_level="AUTOCOMMIT")
        with admin.connect() as connection:
            connection.execute(text(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))
            connection.execute(text(f"CREATE DATABASE {name}"))
        admin.dispose()
        return self._url(name)

    def _url(self, database: str) -> str:
        return f"postgresql+psycopg://farm@/{database}?host={self.folder}"


@contextmanager
def running_server(binaries: Path) -> Iterator[Server]:
    """Started and ready; stopped and removed at the end. PostgreSQL refuses root, so it gets another user."""
    # Not under pytest's own folder, which no other user may enter; a socket's path must be short, too.
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    user = None
    if os.geteuid() == 0:
        user = "nobody"
        shutil.chown(folder, user)
    data = folder / "data"

    def call(program: str, *words: str) -> None:
        command = [str(binaries / program), "-D", str(data), *words]
        subprocess.run(command, check=True, capture_output=True, timeout=60, user=user, cwd=folder)

    try:
        call("initdb", "-A", "trust", "-U", "farm", "-E", "UTF8", "--no-sync")
        call("pg_ctl", "-o", f"-k {folder} -h '' -F", "-l", str(folder / "log"), "-w", "start")
        try:
            yield Server(folder)
        finally:
            call("pg_ctl", "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
