"""What the documents name and any text cites exists; nothing names the workplace."""

from collections.abc import Iterator
from pathlib import PurePosixPath

import pytest

from tests.house import document_rules
from tests.house.repository import ROOT, broken, files

BINARY = frozenset({".png", ".gguf", ".npz", ".bin", ".ico", ".woff2", ".zst", ".gz"})
DOCUMENTS = [path for path in files() if path.suffix == ".md" and path.name != "CHANGELOG.md"]
TARGETS = document_rules.make_targets((ROOT / "Makefile").read_text())
PATHS = [
    PurePosixPath("runtime/kv/block_pool.py"),
    PurePosixPath("docs/glossary.md"),
    PurePosixPath("Makefile"),
]
DOCUMENT = PurePosixPath("docs/x.md")


def texts() -> Iterator[tuple[PurePosixPath, str]]:
    """Every text file of the repository with its content."""
    return (
        (path, (ROOT / path).read_text(errors="replace")) for path in files() if path.suffix not in BINARY
    )


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_every_path_in_a_document_exists(document: PurePosixPath) -> None:
    violations = list(document_rules.missing_paths(document, (ROOT / document).read_text(), files()))
    assert not violations, broken(violations)


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_every_make_target_in_a_document_exists(document: PurePosixPath) -> None:
    violations = list(document_rules.missing_targets(document, (ROOT / document).read_text(), TARGETS))
    assert not violations, broken(violations)


def test_no_file_names_the_workplace() -> None:
    violations = [found for path, text in texts() for found in document_rules.workplace_words(path, text)]
    assert not violations, broken(violations)


def test_no_file_cites_what_is_not_in_the_repository() -> None:
    violations = [
        found for path, text in texts() for found in document_rules.missing_citations(path, text, files())
    ]
    assert not violations, broken(violations)


def test_no_text_says_is_no_for_is_not_a() -> None:
    violations = [
        found
        for path, text in texts()
        if path.name not in ("CHANGELOG.md", "LICENSE")
        for found in document_rules.unidiomatic_negations(path, text)
    ]
    assert not violations, broken(violations)


@pytest.mark.parametrize(
    "text", ["see `runtime/kv/gone.py`", "`./docs/gone/`", "`gone.py`", "`runtime/kv/block_pools.py:12`"]
)
def test_a_path_that_does_not_exist_is_found(text: str) -> None:
    assert len(list(document_rules.missing_paths(DOCUMENT, text, PATHS))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "`runtime/kv/block_pool.py`, `runtime/kv/`, `block_pool.py:12`, `docs/glossary.md::x`",
        "`application/problem+json`, `/v1/runs/{id}`, `GET /v1/runs`, `tokens/s`, `docs/adr/<number>.md`",
        "```\nls runtime/kv/gone.py\n```",
    ],
)
def test_existing_paths_and_other_spans_are_not_reported(text: str) -> None:
    assert list(document_rules.missing_paths(DOCUMENT, text, PATHS)) == []


@pytest.mark.parametrize("text", ["call `make everything`", "```\nmake everything ARGS=1\n```"])
def test_a_missing_make_target_is_found(text: str) -> None:
    assert len(list(document_rules.missing_targets(DOCUMENT, text, TARGETS))) == 1


def test_prose_that_says_make_is_no_target() -> None:
    assert list(document_rules.missing_targets(DOCUMENT, "We make everything; `make test`.", TARGETS)) == []


@pytest.mark.parametrize(
    "text",
    [
        "open /" + "home/somebody/project/README.md",
        "open /" + "work/project/README.md",
        "/" + "root/.config",
        "ls /" + "tmp/scratch",
        "/" + "opt/packages",
        "pip install --index" + "-url x",
        "find" + "-links = x",
        "curl https:/" + "/packages.vendor.io/simple",
        "get http:/" + "/user:word@mirror.vendor.io/simple",
    ],
)
def test_what_holds_on_one_machine_only_is_found(text: str) -> None:
    assert len(list(document_rules.workplace_words(DOCUMENT, text))) == 1


@pytest.mark.parametrize(
    "text",
    ["http://127.0.0.1:8000/x", "https://farm.example/v1", "runtime/tmp/x", "~/.dynofarm", "GET /v1/runs"],
)
def test_addresses_and_paths_of_every_machine_are_not_reported(text: str) -> None:
    assert list(document_rules.workplace_words(DOCUMENT, text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "Source: study" + ".md section 4.",
        "as docs/study" + ".md says",
        "(ADR " + "0999)",
        "docs/adr/" + "0999",
        "never mixed (C" + "6)",
        "requirement " + "C5",
        "trap " + "6",
    ],
)
def test_a_citation_of_what_a_reader_does_not_have_is_found(text: str) -> None:
    assert len(list(document_rules.missing_citations(DOCUMENT, text, PATHS))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "docs/glossary.md",
        "glossary.md",
        'open("report.md")',
        "docs/adr/*.md",
        "RFC 9457 section 3",
        "f(A1 + 2)",
    ],
)
def test_citations_that_lead_somewhere_are_not_reported(text: str) -> None:
    assert list(document_rules.missing_citations(DOCUMENT, text, PATHS)) == []


def test_an_unidiomatic_negation_is_found() -> None:
    text = "what was found is " + "no file\nthere is no file; it is no longer one; it is not a file"
    assert [found.line for found in document_rules.unidiomatic_negations(DOCUMENT, text)] == [1]
