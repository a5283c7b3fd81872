"""The glossary's words are the code's words."""

import pytest

from tests.house.repository import ROOT, Source, broken, package_sources
from tests.house.word_rules import banned_synonyms, banned_words, split_name

GLOSSARY = (ROOT / "docs/glossary.md").read_text()
BANNED = banned_words(GLOSSARY)


def test_the_glossary_bans_a_synonym_of_each_central_word() -> None:
    assert {"device", "job", "attempt", "call", "block table", "TTFT", "TPOT"} <= set(BANNED.values())


def test_no_banned_word_is_itself_a_word_of_the_glossary() -> None:
    words = {
        line.split("|")[1].strip().replace(" ", "_") for line in GLOSSARY.splitlines() if line[:1] == "|"
    }
    assert not words & set(BANNED)


def test_the_source_uses_no_banned_synonym() -> None:
    violations = [found for source in package_sources() for found in banned_synonyms(source, BANNED)]
    assert not violations, broken(violations)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("device_agent/loop/loop.py", "phone_id = 1"),
        ("device_agent/loop/loop.py", "class TestRunRequest: pass"),
        ("device_agent/loop/loop.py", "def f(dut): pass"),
        ("device_agent/loop/loop.py", "self.page_table = {}"),
        ("device_agent/loop/loop.py", "import x as testbed"),
        ("runtime/kv/page_table.py", ""),
    ],
)
def test_a_banned_synonym_is_found(path: str, text: str) -> None:
    assert len(list(banned_synonyms(Source.parse(path, text), BANNED))) == 1


@pytest.mark.parametrize(
    "text", ["iphone = 1", "x = library.phone", "f(phone=1)", "earphones = 2", "page_size_bytes = 4"]
)
def test_a_part_of_a_word_and_a_library_s_name_are_not_reported(text: str) -> None:
    assert list(banned_synonyms(Source.parse("device_agent/loop/loop.py", text), BANNED)) == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("TTFTMetric_ns", ("ttft", "metric", "ns")),
        ("kv_page2", ("kv", "page", "2")),
        ("BlockTable", ("block", "table")),
        ("__init__", ("init",)),
    ],
)
def test_names_are_split_into_words(name: str, words: tuple[str, ...]) -> None:
    assert split_name(name) == words
