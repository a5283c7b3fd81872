"""Each import rule of pyproject.toml catches a seeded violation."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.repository import PACKAGES, ROOT

ROLES = "Roles meet only in the contract"
SEEDED = [
    (ROLES, "runtime/kv/seeded.py", "import device_agent"),
    (ROLES, "dashboard/seeded.py", "from controller.db import session"),
    (ROLES, "controller/api/seeded.py", "import dashboard"),
    ("The contract is a leaf", "contract/seeded.py", "import httpx"),
    ("The contract is a leaf", "contract/seeded.py", "import workloads"),
    ("Workloads know the contract only", "workloads/seeded.py", "import fastapi"),
    ("A runtime is told everything and serves nobody", "runtime/seeded.py", "import workloads"),
    (
        "The device agent never opens a workload and never loads a model",
        "device_agent/seeded.py",
        "import torch",
    ),
    ("The controller needs no phone, no tensor and no figure", "controller/seeded.py", "import plotly"),
    ("The dashboard reads REST, not tables", "dashboard/seeded.py", "import sqlalchemy.orm"),
    (
        "The client is thin and starts other roles as processes only",
        "client/seeded.py",
        "import controller.app",
    ),
    ("Statistics do no I/O", "controller/analysis/seeded.py", "import httpx"),
    (
        "The pool and the scheduler know no tensors",
        "runtime/kv/seeded.py",
        "from runtime.model import seeded",
    ),
    ("The pool does not know who schedules", "runtime/kv/seeded.py", "import runtime.schedule"),
    ("State tables and placement know no store", "controller/attempts/states.py", "import sqlalchemy"),
    ("Controller layers", "controller/db/seeded.py", "import controller.api"),
    ("Controller layers", "controller/db/seeded.py", "import controller.attempts"),
    ("Controller layers", "controller/tasks/seeded.py", "import controller.api"),
]
ALLOWED = [
    ("controller/app.py", "import dashboard.app"),
    ("device_agent/devices/ios.py", "import pymobiledevice3"),
    ("runtime/model/seeded.py", "import torch"),
]


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages' Python files and the configuration, without caches and Swift."""
    copy = tmp_path_factory.mktemp("tree")
    skipped = shutil.ignore_patterns("__pycache__", "ios", "*.json", "*.yaml", "*.gguf")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, copy / package, ignore=skipped)
    shutil.copy(ROOT / "pyproject.toml", copy)
    return copy


@pytest.fixture
def tree(pristine: Path, tmp_path: Path) -> Path:
    """A copy that one test may break."""
    return shutil.copytree(pristine, tmp_path / "tree")


def _seed(tree: Path, path: str, text: str) -> None:
    """Puts the import into the file, and empty files where the import or a package needs one."""
    imported = re.findall(r"(?:import|from) ([\w.]+)", text)[0]
    if imported.split(".")[0] in PACKAGES:
        target = tree / imported.replace(".", "/")
        if not target.with_suffix(".py").exists() and not target.is_dir():
            _ensure(target.with_suffix(".py"))
    _ensure(tree / path)
    with (tree / path).open("a") as file:
        file.write(f"\n{text}\n")


def _ensure(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    (file.parent / "__init__.py").touch()


def _broken(tree: Path) -> set[str]:
    """The names of the broken rules; anything but a verdict on every rule is an error."""
    answer = subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command as c; c()",
            "--no-cache",
            "--no-logo",
        ],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    verdicts = dict(re.findall(r"^(.+?) (KEPT|BROKEN)(?:$| )", answer.stdout, re.MULTILINE))
    assert len(verdicts) == len(_rules(tree)), answer.stdout + answer.stderr
    return {name for name, verdict in verdicts.items() if verdict == "BROKEN"}


def _rules(tree: Path) -> list[str]:
    return re.findall(
        r'^name = "(.+)"$',
        (tree / "pyproject.toml").read_text().split("[tool.importlinter]")[1],
        re.MULTILINE,
    )


def test_the_repository_keeps_every_import_rule(pristine: Path) -> None:
    assert _broken(pristine) == set()


@pytest.mark.parametrize(
    ("rule", "path", "text"), SEEDED, ids=[f"{path}: {text}" for _, path, text in SEEDED]
)
def test_a_seeded_import_breaks_its_rule(tree: Path, rule: str, path: str, text: str) -> None:
    _seed(tree, path, text)
    assert rule in _broken(tree)


@pytest.mark.parametrize(("path", "text"), ALLOWED, ids=[path for path, _ in ALLOWED])
def test_the_composition_roots_and_owners_may_import(tree: Path, path: str, text: str) -> None:
    _seed(tree, path, text)
    assert _broken(tree) == set()


def test_every_rule_is_tried(pristine: Path) -> None:
    assert {rule for rule, _, _ in SEEDED} == set(_rules(pristine))
