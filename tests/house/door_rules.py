"""Rules on doors: what is stored has a reader, what is promised a producer, what is public a caller.

By names only: a name that stands anywhere in product code counts as used, so that nothing is found in vain.
"""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator

from tests.house.repository import Source, Violation

# Called by a framework, by the name alone.
_FRAMEWORK_PARTS = ("visit_", "do_", "on_", "process_bind_", "process_result_")

_REGISTER_NOTHING = frozenset(
    {"property", "cached_property", "classmethod", "staticmethod", "cache", "lru_cache", "override"}
    | {"contextmanager", "asynccontextmanager"}
)


def uses(sources: Iterable[Source]) -> Counter[str]:
    """How often each name is read, or stands alone in a string as 'name', over all files."""
    found: Counter[str] = Counter()
    for source in sources:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                found[node.id] += 1
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                found[node.attr] += 1
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                found[f"'{node.value}'"] += 1
    return found


def calls(sources: Iterable[Source]) -> frozenset[str]:
    """Names that are called somewhere: `TokenEmitted(...)` as well as `events.TokenEmitted(...)`."""
    found = set()
    for source in sources:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Call):
                name = node.func
                found.add(name.attr if isinstance(name, ast.Attribute) else getattr(name, "id", ""))
    return frozenset(found)


def members_used(sources: Iterable[Source], enumeration: str) -> frozenset[str]:
    """Members that stand as `Enumeration.MEMBER` in these files."""
    return frozenset(
        node.attr
        for source in sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == enumeration
    )


def public_functions(source: Source) -> Iterator[tuple[ast.AST, str]]:
    """Functions and methods whose name is public and that no decorator hands to somebody else."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            is_public = not node.name.startswith(("_", *_FRAMEWORK_PARTS))
            handed_on = any(_is_handed_on(each) for each in node.decorator_list)
            if is_public and not handed_on:
                yield node, node.name


def _is_handed_on(decorator: ast.expr) -> bool:
    """Registered by its decorator, such as a route's; `property` and its like register nothing."""
    return ast.unparse(decorator).split("(")[0].split(".")[-1] not in _REGISTER_NOTHING


def uncalled_functions(sources: list[Source], used: Counter[str]) -> Iterator[tuple[str, Violation]]:
    """A public function that only its own definition, or only a test, knows."""
    for source in sources:
        for node, name in public_functions(source):
            if not used[name] and not used[f"'{name}'"]:
                found = f"{name}() has no caller outside of the tests: remove it, or list it with the reason"
                yield name, source.found(node, found)


def unread_columns(sources: list[Source], used: Counter[str]) -> Iterator[tuple[str, Violation]]:
    """A column of a table that no code reads."""
    for source in sources:
        for row in ast.walk(source.tree):
            if isinstance(row, ast.ClassDef) and row.name.endswith("Row"):
                for node in row.body:
                    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                        name = f"{row.name}.{node.target.id}"
                        if not used[node.target.id]:
                            yield name, source.found(node, f"{name} has no reader")
