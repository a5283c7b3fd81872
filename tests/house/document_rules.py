"""Rules on prose: what a document names exists, and nothing names the place where it was written."""

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from tests.house.repository import Violation

_CODE = re.compile(r"`([^`\n]+)`")
_FENCED = re.compile(r"^(```|~~~)")
# A path: folders of plain names, or a file of a kind that the repository holds.
_PATH = re.compile(r"^(?:\./)?[\w.\-]+(?:/[\w.\-]+)*/?$")
_FILE_KINDS = frozenset(
    {".py", ".md", ".toml", ".yaml", ".yml", ".json", ".txt", ".sh", ".swift", ".metal", ".cfg", ".lock"}
)
_MAKE = re.compile(r"\bmake\s+([a-z][a-z-]*)\b")
_TARGET = re.compile(r"^([a-z][a-z-]*):(?!=)", re.MULTILINE)

# Joined from pieces, so that this file keeps the rule that it checks.
_WORKPLACE = tuple(
    re.compile(pattern)
    for pattern in (
        r"/" + r"work/(?:main|shared|\.library)\b",
        r"/tmp/" + r"(?:brief|bash_jobs)",
        r"/opt/" + r"wheels",
        r"/ro" + r"ot/\S",
        r"\bissues " + r"(?:show|list|close)\b",
        r"\bproject " + r"machine\b",
        r"https?://" + r"[\w.-]*(?:pypi|pythonhosted|pytorch)\.org",
        r"https?://" + r"[\w.-]*(?:npmjs\.org|debian\.org|golang\.org)",
        r"--(?:extra-)?" + r"index-url|find-" + r"links",
    )
)


def code_spans(text: str) -> Iterator[tuple[int, str]]:
    """(line, content) of every `span` in backticks; fenced blocks are left out."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if _FENCED.match(line):
            fenced = not fenced
        elif not fenced:
            for span in _CODE.findall(line):
                yield number, span


def missing_paths(document: PurePosixPath, text: str, paths: Iterable[PurePosixPath]) -> Iterator[Violation]:
    """Every path of this repository that a document names in backticks exists.

    A span counts as one when it looks like a path and either begins with a folder or file of the top
    level, or ends like a file of ours. Patterns (`*`, `<name>`) and URLs do not look like a path.
    """
    known = {str(folder) for path in paths for folder in (path, *path.parents)}
    names = {PurePosixPath(path).name for path in known}
    for number, span in code_spans(text):
        # `path:12` and `path::test` name a place inside the file.
        bare = re.split(r"::|:\d", span, maxsplit=1)[0].removeprefix("./").rstrip("/")
        if not _PATH.match(bare) or bare in known:
            continue
        first, has_folder = bare.split("/")[0], "/" in bare
        looks_like_file = PurePosixPath(bare).suffix in _FILE_KINDS
        if (has_folder and first in known) or (looks_like_file and (has_folder or bare not in names)):
            yield Violation(document, number, f"{span!r} does not exist")


def make_targets(makefile: str) -> frozenset[str]:
    """The targets that a Makefile defines."""
    return frozenset(_TARGET.findall(makefile))


def missing_targets(document: PurePosixPath, text: str, targets: frozenset[str]) -> Iterator[Violation]:
    """Every `make something` that a document shows, in backticks or in a fenced block, is a target."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if _FENCED.match(line):
            fenced = not fenced
            continue
        shown = line if fenced else " ; ".join(_CODE.findall(line))
        for target in _MAKE.findall(shown):
            if target not in targets:
                yield Violation(document, number, f"the Makefile has no target {target!r}")


def workplace_words(path: PurePosixPath, text: str) -> Iterator[Violation]:
    """No file names a path, a tool or a registry address of the machine on which it was written."""
    for number, line in enumerate(text.splitlines(), 1):
        for pattern in _WORKPLACE:
            if match := pattern.search(line):
                yield Violation(path, number, f"{match[0]!r} names the workplace")
