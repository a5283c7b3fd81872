"""Rules on the shape of files: names, sizes, and where a test lies."""

import ast
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from tests.house.repository import PACKAGES, Source, Violation

VAGUE_NAMES = frozenset(
    {"utils", "util", "common", "commons", "helpers", "helper", "base", "manager", "managers"}
    | {"misc", "shared", "stuff", "tools", "core", "lib"}
)
MAX_FUNCTION_LINES = 50
MAX_FILE_LINES = 400
# A revision is a list of tables: it is read once, from top to bottom, and splitting it would hide its order.
_LISTS = ("migrations/versions",)
# Folders of tests that mirror no package; exactness is a promise of the whole runtime, of no folder in it.
OWN_TEST_FOLDERS = frozenset(
    {"benchmarks", "house", "e2e", "migrations", "fakes", "devices", "runtime/exactness"}
)


def vague_names(source: Source) -> Iterator[Violation]:
    """A path says what the file does: no module or folder has a name that fits everything."""
    for part in source.path.with_suffix("").parts:
        if part in VAGUE_NAMES:
            yield Violation(source.path, 1, f"{part!r} says nothing; name it after the noun it serves")


def long_functions(source: Source) -> Iterator[Violation]:
    """A function has at most 50 lines, from its `def` to its end; a database revision may have more."""
    if source.is_in(*_LISTS):
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                yield source.found(node, f"{node.name} has {lines} lines, {MAX_FUNCTION_LINES} are allowed")


def long_files(source: Source) -> Iterator[Violation]:
    """A file has at most 400 lines; a database revision may have more."""
    if source.is_in(*_LISTS):
        return
    lines = len(source.text.splitlines())
    if lines > MAX_FILE_LINES:
        yield Violation(source.path, lines, f"{lines} lines, {MAX_FILE_LINES} are allowed")


def misplaced_tests(paths: Iterable[PurePosixPath], folders: frozenset[str]) -> Iterator[Violation]:
    """A test file lies where its source lies: tests/P/Q/test_x.py beside a folder or module P/Q.

    `folders` are the source folders and the modules without their suffix, as posix strings.
    """
    for path in paths:
        if path.parts[0] != "tests" or not path.name.startswith("test_"):
            continue
        mirrored = PurePosixPath(*path.parts[1:-1])
        if mirrored.parts and not OWN_TEST_FOLDERS.isdisjoint((mirrored.parts[0], str(mirrored))):
            continue
        if str(mirrored) not in folders:
            yield Violation(path, 1, f"mirrors {str(mirrored)!r}, which is not a folder or module")


def mirrorable(paths: Iterable[PurePosixPath]) -> frozenset[str]:
    """The folders and modules of the packages that a test may mirror."""
    modules = [path for path in paths if path.parts[0] in PACKAGES and path.suffix == ".py"]
    folders = {str(folder) for path in modules for folder in path.parents if folder.parts}
    return frozenset(folders | {str(path.with_suffix("")) for path in modules})
