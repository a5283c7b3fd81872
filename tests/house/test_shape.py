"""Names, sizes and places of files; each rule is kept by the repository and catches a seeded violation."""

from collections.abc import Callable, Iterator
from pathlib import PurePosixPath

import pytest

from tests.house import shape_rules
from tests.house.repository import PACKAGES, Source, Violation, broken, files, package_sources, sources

SourceRule = Callable[[Source], Iterator[Violation]]

LONG_FUNCTION = "def work():\n" + "    x = 1\n" * 50
LONG_METHOD = "class A:\n    async def unit_of_work(self):\n" + "        x = 1\n" * 50

ALL_FILES_RULES = [shape_rules.vague_names, shape_rules.long_functions, shape_rules.long_files]
SEEDED = [
    (shape_rules.vague_names, "runtime/utils.py", ""),
    (shape_rules.vague_names, "controller/common/leases.py", ""),
    (shape_rules.vague_names, "tests/fakes/helpers.py", ""),
    (shape_rules.long_functions, "runtime/kv/block_pool.py", LONG_FUNCTION),
    (shape_rules.long_functions, "runtime/kv/block_pool.py", LONG_METHOD),
    (shape_rules.long_files, "contract/jobs.py", "x = 1\n" * 401),
]
WITHIN_LIMITS = [
    (shape_rules.vague_names, "runtime/kv/block_pool.py", ""),
    (shape_rules.long_functions, "runtime/kv/block_pool.py", "def work():\n" + "    x = 1\n" * 49),
    (shape_rules.long_files, "contract/jobs.py", "x = 1\n" * 400),
    (shape_rules.long_functions, "migrations/versions/2026-01-01-0000_tables.py", LONG_FUNCTION),
]


@pytest.mark.parametrize("rule", ALL_FILES_RULES, ids=lambda rule: rule.__name__)
def test_every_python_file_keeps_the_rule(rule: SourceRule) -> None:
    violations = [violation for source in sources() for violation in rule(source)]
    assert not violations, broken(violations)


@pytest.mark.parametrize(("rule", "path", "text"), SEEDED, ids=lambda value: getattr(value, "__name__", ""))
def test_a_seeded_violation_is_found(rule: SourceRule, path: str, text: str) -> None:
    assert [str(violation.path) for violation in rule(Source.parse(path, text))] == [path]


@pytest.mark.parametrize(
    ("rule", "path", "text"), WITHIN_LIMITS, ids=lambda value: getattr(value, "__name__", "")
)
def test_what_is_just_allowed_is_not_reported(rule: SourceRule, path: str, text: str) -> None:
    assert list(rule(Source.parse(path, text))) == []


def test_every_test_file_mirrors_the_source() -> None:
    violations = list(shape_rules.misplaced_tests(files(), shape_rules.mirrorable(files())))
    assert not violations, broken(violations)


@pytest.mark.parametrize("path", ["tests/test_everything.py", "tests/runtime/cache/test_pool.py"])
def test_a_test_file_that_mirrors_nothing_is_found(path: str) -> None:
    folders = shape_rules.mirrorable([PurePosixPath("runtime/kv/block_pool.py")])
    assert [str(found.path) for found in shape_rules.misplaced_tests([PurePosixPath(path)], folders)] == [
        path
    ]


@pytest.mark.parametrize(
    "path",
    [
        "tests/runtime/kv/test_a.py",
        "tests/runtime/kv/block_pool/test_a.py",
        "tests/e2e/test_a.py",
        "tests/runtime/exactness/test_a.py",
    ],
)
def test_a_test_file_may_mirror_a_folder_or_a_module(path: str) -> None:
    folders = shape_rules.mirrorable([PurePosixPath("runtime/kv/block_pool.py")])
    assert list(shape_rules.misplaced_tests([PurePosixPath(path)], folders)) == []


def test_the_rules_see_the_packages() -> None:
    seen = {source.path.parts[0] for source in package_sources()}
    assert set(PACKAGES) == seen
