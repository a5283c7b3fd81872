"""Rules on prose: what a text names or cites exists, and nothing names the place where it was written."""

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

# A path that begins at a person's or a build machine's folders exists nowhere else. The look-behind lets
# relative paths, URLs and regular expressions pass.
_MACHINE_PATH = re.compile(
    r"(?<![\w.~}>*/\-])/(?:home|Users|root|work|opt|srv|mnt|tmp|private)/\.?\w[\w.\-]*"
)
# Joined from pieces, so that this file keeps the rule that it checks.
_INDEX_OPTION = re.compile(r"--(?:extra-)?" + r"index-url|find-" + r"links")
_URL_HOST = re.compile(r"\bhttps?:/{2}(?:[^\s/@\"'`]+@)?([A-Za-z0-9][\w.\-]*)")
# Loopback, names that are reserved for examples and tests (RFC 2606), single words, the licences' own, and
# the viewer in which a person opens our traces.
_OPEN_HOST = re.compile(
    r"127\.0\.0\.1|(?:[\w\-]+\.)*(?:example|test|invalid|localhost)|example\.(?:com|org|net)|[\w\-]+"
    r"|www\.gnu\.org|fsf\.org|www\.apache\.org|ui\.perfetto\.dev"
)
# A page or decision that prose cites. A quoted name is a file that the program itself writes or reads.
_PAGE = re.compile(r"""(?<![\w"'/{}.*<>-])((?:[\w-]+/)*[\w-]+\.md)\b""")
_DECISION = re.compile(r"\bADR (\d{4})\b|\bdocs/adr/(\d{4})\b")
# Numbers of a list that a reader does not have: a requirement, a study's trap.
_NUMBER_OF_NOTHING = re.compile(r"\([A-DR]\d{1,2}(?=[,:)])|\brequirement [A-Z]\d+|\btrap \d+")

# "X is no Y" for "X is not a Y". Sound are "there is no Y" and comparatives.
_IS_NO = re.compile(
    r"(?<!here )\b(?:is|are|was|were) no (?!longer|more|less|faster|slower|better|worse)[a-z]\w*"
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
    """No file names a path of one machine, a package index of its own, or a host on the network.

    Hosts that are allowed are listed, and not those that are forbidden.
    """
    for number, line in enumerate(text.splitlines(), 1):
        for pattern in (_MACHINE_PATH, _INDEX_OPTION):
            if match := pattern.search(line):
                yield Violation(path, number, f"{match[0]!r} holds on one machine only")
        for host in _URL_HOST.findall(line):
            if not _OPEN_HOST.fullmatch(host.rstrip(".")):
                yield Violation(path, number, f"{host!r} is a host that the product does not need")


def missing_citations(path: PurePosixPath, text: str, paths: Iterable[PurePosixPath]) -> Iterator[Violation]:
    """What a docstring, comment or document cites lies in the repository; a public source is named in full.

    Fenced blocks are left out: there stand names of a user's own files.
    """
    known = {str(name) for name in paths}
    pages = known | {PurePosixPath(name).name for name in known}
    decisions = {PurePosixPath(name).name[:4] for name in known if name.startswith("docs/adr/")}
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        fenced = fenced != bool(_FENCED.match(line))
        for page in () if fenced else _PAGE.findall(line):
            if page not in pages and str(path.parent / page) not in known:
                yield Violation(
                    path, number, f"{page!r} is not in the repository; cite an ADR or a public source"
                )
        for cited in _DECISION.findall(line):
            if (decision := "".join(cited)) not in decisions:
                yield Violation(path, number, f"there is no ADR {decision}")
        if match := _NUMBER_OF_NOTHING.search(line):
            yield Violation(
                path, number, f"{match[0]!r} numbers an item of a list that a reader does not have"
            )


def unidiomatic_negations(path: PurePosixPath, text: str) -> Iterator[Violation]:
    """Texts that people read say "is not a file", as English does, and not "is" with "no"."""
    for number, line in enumerate(text.splitlines(), 1):
        if match := _IS_NO.search(line):
            yield Violation(
                path, number, f"{match[0]!r}: write 'is not a ...', 'are not ...' or 'there is no ...'"
            )
