"""Rule on words: a name of the source uses no synonym that the glossary bans."""

import ast
import re
from collections.abc import Iterator, Mapping

from tests.house.repository import Source, Violation

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_CODE = re.compile(r"`([^`]+)`")


def banned_words(glossary: str) -> dict[str, str]:
    """Banned name → the word to use, from every table whose last column is headed `never say`."""
    banned: dict[str, str] = {}
    in_table = False
    for line in glossary.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")] if line.startswith("|") else []
        if not cells:
            in_table = False
        elif cells[-1] == "never say":
            in_table = True
        elif in_table and len(cells) == 3:
            banned.update(dict.fromkeys(_CODE.findall(cells[2]), cells[0]))
    return banned


def split_name(name: str) -> tuple[str, ...]:
    """`PrefixCacheTTFT_ns` → ("prefix", "cache", "ttft", "ns")."""
    return tuple(word.lower() for word in _WORD.findall(name))


def defined_names(source: Source) -> Iterator[tuple[ast.AST, str]]:
    """The names that the file itself gives: modules, classes, functions, parameters, variables, fields."""
    yield source.tree, source.path.stem
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node, node.name
        elif isinstance(node, ast.arg):
            yield node, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node, node.attr
        elif isinstance(node, ast.alias) and node.asname:
            yield node, node.asname


def banned_synonyms(source: Source, banned: Mapping[str, str]) -> Iterator[Violation]:
    """One word per concept: no name contains a banned one as whole words, `phone_id` but not `iphone`."""
    by_words = {split_name(name): name for name in banned}
    longest = max(map(len, by_words), default=0)
    for node, name in defined_names(source):
        words = split_name(name)
        spans = (
            words[start : start + length]
            for length in range(1, longest + 1)
            for start in range(len(words) - length + 1)
        )
        for span in spans:
            if span in by_words:
                synonym = by_words[span]
                yield source.found(node, f"{name!r} says {synonym!r}; the word is {banned[synonym]!r}")
                break
