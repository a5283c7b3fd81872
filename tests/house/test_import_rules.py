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
LAYERS = "Controller layers"
RUNTIME_LAYERS = "Runtime layers"
AGENT_LAYERS = "Device agent layers"
PHONES = "Two packages of the device agent speak to iPhones"
EMULATOR = "The emulator of iPhones and the code that drives real ones know nothing of each other"
# Rule, the folder into which a module is seeded, what that module imports.
SEEDED = [
    (ROLES, "runtime/kv", "import device_agent"),
    (ROLES, "dashboard", "import controller.errors"),
    (ROLES, "controller/api", "import dashboard"),
    ("The contract is a leaf", "contract", "import httpx"),
    ("The contract is a leaf", "contract", "import workloads"),
    ("Workloads know the contract only", "workloads", "import fastapi"),
    ("A runtime is told everything and serves nobody", "runtime", "import workloads"),
    ("The device agent never opens a workload and never loads a model", "device_agent", "import torch"),
    (PHONES, "device_agent/targets/ios", "import pymobiledevice3.dtx"),
    (AGENT_LAYERS, "device_agent/collect", "import device_agent.attempt.lease"),
    (AGENT_LAYERS, "device_agent/floor", "import device_agent.targets.port"),
    (AGENT_LAYERS, "device_agent/targets/host", "import device_agent.attempt.outcome"),
    (AGENT_LAYERS, "device_agent/ios_worker", "import device_agent.recording.plaintext"),
    ("Emulator layers", "device_agent/virtual/link", "import device_agent.virtual.device.device"),
    (EMULATOR, "device_agent/virtual", "import device_agent.ios_worker"),
    ("The controller needs no phone, no tensor and no figure", "controller", "import plotly"),
    ("The dashboard reads REST, not tables", "dashboard", "import sqlalchemy.orm"),
    ("The client is thin and starts other roles as processes only", "client", "import controller.errors"),
    ("Measures are a leaf over the contract", "measures", "import httpx"),
    ("The transport is a leaf over the contract", "rest", "import controller.errors"),
    ("Only the transport speaks HTTP to a controller", "dashboard", "import httpx"),
    ("Decisions of the transport touch no network", "rest/tries.py", "import asyncio"),
    ("Measures are a leaf over the contract", "measures/facts", "import controller.db"),
    ("Each part of measures rests on those before it", "measures/metrics", "import measures.verdict"),
    ("Facts and metrics need no numeric library", "measures/metrics", "import numpy"),
    ("The pool and the scheduler know no tensors", "runtime/kv", "import runtime.model"),
    (RUNTIME_LAYERS, "runtime/kv", "import runtime.schedule"),
    (RUNTIME_LAYERS, "runtime/model", "import runtime.tiers"),
    (RUNTIME_LAYERS, "runtime/engine", "import runtime.measured"),
    (RUNTIME_LAYERS, "runtime/calibration", "import runtime.bench"),
    ("Tiers of kernels know nothing of each other", "runtime/tiers/cuda", "import runtime.tiers.native"),
    ("State tables and placement know no store", "controller/scheduling/placement.py", "import sqlalchemy"),
    (LAYERS, "controller/db", "import controller.protocol"),
    (LAYERS, "controller/tasks", "import controller.api"),
]
ALLOWED = [
    ("controller/app.py", "import dashboard"),
    ("runtime/model", "import torch"),
    ("runtime/tiers/aten", "import torch"),
    ("client", "import workloads"),
    ("client", "import measures.metrics"),
    ("runtime/bench", "import measures.metrics"),
]


def _copy(folder: Path) -> Path:
    """The packages' Python files and the configuration, without caches and Swift."""
    skipped = ["__pycache__", "*.json", "*.yaml", "*.gguf"]
    for package in PACKAGES:
        swift = ["ios"] if package == "runtime" else []
        ignored = shutil.ignore_patterns(*skipped, *swift)
        shutil.copytree(ROOT / package, folder / package, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def _seed(tree: Path, place: str, text: str, number: int) -> str:
    """Adds the import to a file, or as a module of its own to a folder; the module's dotted name."""
    file = tree / place if place.endswith(".py") else tree / place / f"seeded_{number}.py"
    file.parent.mkdir(exist_ok=True)
    (file.parent / "__init__.py").touch()
    with file.open("a") as opened:
        opened.write(f"\n{text}\n")
    return ".".join(file.relative_to(tree).with_suffix("").parts)


def _broken(tree: Path) -> dict[str, str]:
    """Each broken rule with what was printed of it; anything but a verdict on every rule is an error."""
    answer = subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command as lint; lint()",
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
    assert set(verdicts) == RULES, answer.stdout + answer.stderr
    # A broken rule has a section: its name, a line of dashes, the chains of imports.
    sections = re.split(
        r"^(.+)\n-+\n\n", answer.stdout.partition("Broken contracts\n")[2], flags=re.MULTILINE
    )
    printed = dict(zip(sections[1::2], sections[2::2], strict=True))
    return {rule: printed[rule] for rule, verdict in verdicts.items() if verdict == "BROKEN"}


def _rules() -> frozenset[str]:
    configuration = (ROOT / "pyproject.toml").read_text().split("[tool.importlinter]")[1]
    return frozenset(re.findall(r'^name = "(.+)"$', configuration, re.MULTILINE))


RULES = _rules()


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], list[str]]:
    """What is broken in a copy with every violation at once, and the names of the seeded modules."""
    tree = _copy(tmp_path_factory.mktemp("seeded"))
    modules = [_seed(tree, place, text, number) for number, (_, place, text) in enumerate(SEEDED)]
    return _broken(tree), modules


def test_the_repository_keeps_every_import_rule(tmp_path: Path) -> None:
    assert _broken(_copy(tmp_path)) == {}


@pytest.mark.parametrize("number", range(len(SEEDED)), ids=[f"{place}: {text}" for _, place, text in SEEDED])
def test_a_seeded_import_breaks_its_rule(seeded: tuple[dict[str, str], list[str]], number: int) -> None:
    broken, modules = seeded
    rule, _, text = SEEDED[number]
    assert re.search(rf"{re.escape(modules[number])} -> {text.split()[1].split('.')[0]}", broken[rule])


def test_the_composition_root_and_the_owners_may_import(tmp_path: Path) -> None:
    tree = _copy(tmp_path)
    for number, (place, text) in enumerate(ALLOWED):
        _seed(tree, place, text, number)
    assert _broken(tree) == {}


def test_every_rule_is_tried() -> None:
    assert {rule for rule, _, _ in SEEDED} == RULES
