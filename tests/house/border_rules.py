"""Rules on who may touch what: packages with one owner, the transaction, the state, the clock."""

import ast
from collections.abc import Iterator

from contract.problems import ProblemCode
from tests.house.repository import Source, Violation

PURE_FOLDERS = (
    *("measures", "controller/states", "controller/scheduling", "controller/protocol"),
    "dashboard/figures",
)
_STATE_NAMES = frozenset({"status", "state"})
_CLOCKS = frozenset(
    f"time.{name}{suffix}"
    for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time")
    for suffix in ("", "_ns")
) | {f"{owner}.{name}" for owner in ("datetime", "date") for name in ("now", "utcnow", "today")}


def _imports(source: Source) -> Iterator[tuple[ast.AST, str]]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node, node.module
        elif isinstance(node, ast.Call) and node.args and _last_name(node.func) in _IMPORTERS:
            name = node.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield node, name.value


# The worker drives real devices; the emulator uses two codecs; their tests are independent clients.
_SPEAK_TO_PHONES = (
    "device_agent/ios_worker",
    "device_agent/virtual/protocols/dtx.py",
    "device_agent/virtual/protocols/xpc.py",
    "tests/device_agent/ios_worker",
    "tests/device_agent/virtual",
)
_IMPORTERS = frozenset({"import_module", "__import__"})


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _dotted(node: ast.expr) -> str:
    """`datetime.datetime.now` as a string; empty when the expression is not a plain chain of names."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value)
        return f"{owner}.{node.attr}" if owner else ""
    return ""


def strayed_phone_imports(source: Source) -> Iterator[Violation]:
    """pymobiledevice3 is GPL-3.0-or-later and speaks to devices: few modules import it (docs/adr/0004)."""
    if source.is_in(*_SPEAK_TO_PHONES):
        return
    for node, name in _imports(source):
        if name.split(".")[0] == "pymobiledevice3":
            yield source.found(
                node,
                "only the worker and two codecs of the emulator may import pymobiledevice3",
            )


def strayed_torch_imports(source: Source) -> Iterator[Violation]:
    """Tensors live in runtime/model and the tiers of kernels: everything else works on ids and counts."""
    if source.is_in("runtime/model", "runtime/tiers"):
        return
    for node, name in _imports(source):
        if name.split(".")[0] == "torch":
            yield source.found(node, "only runtime/model and runtime/tiers may import torch")


def strayed_commits(source: Source) -> Iterator[Violation]:
    """One request or task is one transaction: the controller commits in one place, migrations in another."""
    if not source.is_in("controller") or source.is_in("controller/db/session.py", "controller/db/migrate.py"):
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "commit":
            yield source.found(node, "only controller/db/session.py commits; use its unit of work")


def strayed_state_changes(source: Source) -> Iterator[Violation]:
    """The state of a row changes through the table of its machine, in controller/protocol/transitions.py."""
    if not source.is_in("controller") or source.is_in("controller/protocol/transitions.py"):
        return
    for node in ast.walk(source.tree):
        if any(_is_foreign_state(target) for target in _targets(node)):
            yield source.found(node, "a state is set in controller/protocol/transitions.py only")
        elif isinstance(node, ast.Call) and _writes_state(node):
            yield source.found(node, "a state is written in controller/protocol/transitions.py only")


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Assign):
        roots = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For | ast.AsyncFor | ast.NamedExpr):
        roots = [node.target]
    else:
        return
    for root in roots:
        yield from root.elts if isinstance(root, ast.Tuple | ast.List) else [root]


def _is_foreign_state(target: ast.expr) -> bool:
    """`row.state = …`, and not an object's own `self.state = …`."""
    return (
        isinstance(target, ast.Attribute)
        and target.attr in _STATE_NAMES
        and not (isinstance(target.value, ast.Name) and target.value.id == "self")
    )


def _writes_state(call: ast.Call) -> bool:
    """`update(...).values(state=…)` or `setattr(row, "state", …)`; an insert names its first state freely."""
    name = _last_name(call.func)
    if name == "setattr" and len(call.args) > 1:
        written = call.args[1]
        return isinstance(written, ast.Constant) and written.value in _STATE_NAMES
    if name == "values" and "insert(" not in ast.unparse(call.func):
        return any(keyword.arg in _STATE_NAMES for keyword in call.keywords)
    return False


def clocks_in_pure_code(source: Source) -> Iterator[Violation]:
    """Statistics, state tables and figures are given the time; they never ask for it."""
    if not source.is_in(*PURE_FOLDERS):
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call):
            called = ".".join(_dotted(node.func).split(".")[-2:])
            if called in _CLOCKS:
                yield source.found(node, f"{called}() in pure code; pass the time in")
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            yield source.found(node, "pure code has no clock; pass the time in")


# The command line and the emulator have errors of their own under these names.
_OTHERS_SAY_TOO = {ProblemCode.BAD_REQUEST, ProblemCode.BAD_REQUEST}


def strayed_wire_facts(source: Source) -> Iterator[Violation]:
    """Paths and problem codes stand in contract/routes.py and contract/problems.py, and nowhere else."""
    if source.path.parts[0] == "contract":
        return
    codes = {code.value for code in ProblemCode if "-" in code} - _OTHERS_SAY_TOO
    docstrings = {id(node.value) for node in ast.walk(source.tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in docstrings:
            continue
        if node.value.startswith(("/v1/", "/device-agent/")):
            yield Violation(source.path, node.lineno, "name a route of contract/routes.py")
        if node.value in codes:
            yield Violation(source.path, node.lineno, "name a ProblemCode")
