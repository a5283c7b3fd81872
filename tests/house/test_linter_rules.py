"""The rules that ruff keeps for us are switched on: each catches a seeded violation."""

import json
import subprocess
import sys

import pytest

from tests.house.repository import ROOT

_DOCSTRING = '"""What it holds."""\n'
SEEDED = [
    ("PLR0913", "def work(a, b, c, d, e, f):\n    '''Six.'''\n"),
    ("FBT001", "def work(flag: bool):\n    '''Positional flag.'''\n"),
    ("FBT002", "def work(flag=False):\n    '''Positional flag.'''\n"),
    ("D419", "def work():\n    ''''''\n"),
    ("T201", "print(1)\n"),
    ("DTZ005", "import datetime\nx = datetime.datetime.now()\n"),
    ("TID252", "from . import x\n"),
    ("N818", "class Broken(Exception):\n    '''Not named Error.'''\n"),
    ("C901", "def work(x):\n    '''Twelve ways.'''\n" + "    if x:\n        x = 1\n" * 12),
    ("E722", "try:\n    x = 1\nexcept:\n    x = 2\n"),
]


def _codes(path: str, text: str) -> set[str]:
    answer = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--output-format=json", f"--stdin-filename={path}", "-"],
        input=text,
        capture_output=True,
        cwd=ROOT,
        text=True,
        check=False,
        timeout=60,
    )
    return {finding["code"] for finding in json.loads(answer.stdout)}


@pytest.mark.parametrize(("code", "text"), SEEDED, ids=[code for code, _ in SEEDED])
def test_ruff_finds_the_seeded_violation(code: str, text: str) -> None:
    assert code in _codes("controller/seeded.py", _DOCSTRING + text)


def test_a_module_without_a_docstring_is_found() -> None:
    assert "D100" in _codes("controller/seeded.py", "x = 1\n")


def test_what_keeps_the_rules_is_not_reported() -> None:
    text = "def work(a: int, *, quiet: bool) -> int:\n" + '    """Return `a`."""\n    return a\n'
    assert _codes("controller/seeded.py", _DOCSTRING + "\n\n" + text) == set()
