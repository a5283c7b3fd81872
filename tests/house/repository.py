"""The repository as the rules see it: its files, parsed once, and what a broken rule looks like."""

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "contract",
    "measures",
    "rest",
    "controller",
    "device_agent",
    "runtime",
    "workloads",
    "dashboard",
    "client",
)


@dataclass(frozen=True, slots=True)
class Violation:
    """One place that breaks a rule; reads like a compiler's message."""

    path: PurePosixPath
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


@dataclass(frozen=True, slots=True)
class Source:
    """One Python file: its path in the repository, its text and its syntax tree."""

    path: PurePosixPath
    text: str
    tree: ast.Module

    @classmethod
    def parse(cls, path: str, text: str) -> "Source":
        """Raises SyntaxError when the text is not Python."""
        return cls(PurePosixPath(path), text, ast.parse(text, path))

    def is_in(self, *folders: str) -> bool:
        """Whether the file is one of `folders` or lies under one."""
        return any(self.path.is_relative_to(folder) for folder in folders)

    def found(self, node: ast.AST, message: str) -> Violation:
        """A violation at the node's line."""
        return Violation(self.path, getattr(node, "lineno", 1), message)


@cache
def files() -> tuple[PurePosixPath, ...]:
    """Every file that git tracks or would track, in order; without git, every file that is not hidden."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=False,
        timeout=60,
    )
    if listed.returncode == 0:
        names = {PurePosixPath(name) for name in listed.stdout.decode().split("\0") if name}
    else:
        names = {PurePosixPath(path.relative_to(ROOT).as_posix()) for path in ROOT.rglob("*")}
        names = {name for name in names if not {".venv", "__pycache__", ".git"} & set(name.parts)}
    # A file deleted but not yet committed is still listed.
    return tuple(sorted(name for name in names if (ROOT / name).is_file()))


@cache
def sources() -> tuple[Source, ...]:
    """Every Python file of the repository, tests and migrations included."""
    return tuple(
        Source.parse(str(name), (ROOT / name).read_text()) for name in files() if name.suffix == ".py"
    )


def package_sources() -> Iterator[Source]:
    """The Python files of the packages that are shipped."""
    return (source for source in sources() if source.is_in(*PACKAGES))


def broken(violations: list[Violation]) -> str:
    """The violations as one message for an assertion."""
    return "\n".join(map(str, violations))
