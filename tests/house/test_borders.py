"""Packages with one owner, transactions, states and clocks: kept by the repository, and seen when broken."""

from collections.abc import Callable, Iterator

import pytest

from tests.house import border_rules
from tests.house.repository import Source, Violation, broken, package_sources, sources

SourceRule = Callable[[Source], Iterator[Violation]]

RULES = [
    border_rules.strayed_phone_imports,
    border_rules.strayed_torch_imports,
    border_rules.strayed_commits,
    border_rules.strayed_state_changes,
    border_rules.clocks_in_pure_code,
    border_rules.strayed_wire_facts,
]
SEEDED = [
    (border_rules.strayed_wire_facts, "client/api.py", "x = f'/v1/runs/{run_id}'"),
    (border_rules.strayed_wire_facts, "dashboard/pages/compare.py", "x = code == 'not-comparable'"),
    (
        border_rules.strayed_phone_imports,
        "device_agent/probes/battery.py",
        "from pymobiledevice3 import usbmux",
    ),
    (border_rules.strayed_phone_imports, "controller/app.py", "import pymobiledevice3.lockdown as lockdown"),
    (
        border_rules.strayed_phone_imports,
        "device_agent/virtual/app/apps.py",
        "import pymobiledevice3",
    ),
    (border_rules.strayed_phone_imports, "client/up.py", "import_module('pymobiledevice3')"),
    (border_rules.strayed_torch_imports, "runtime/engine/loop.py", "import torch.nn.functional as F"),
    (
        border_rules.strayed_torch_imports,
        "device_agent/main.py",
        "def f():\n    from torch import Tensor",
    ),
    (border_rules.strayed_commits, "controller/api/runs.py", "def f(session):\n    session.commit()"),
    (
        border_rules.strayed_commits,
        "controller/tasks/reap.py",
        "async def f(self):\n    await self.db.commit()",
    ),
    (border_rules.strayed_state_changes, "controller/api/runs.py", "row.status = 'done'"),
    (border_rules.strayed_state_changes, "controller/ingest/store.py", "attempt.state, other = a, b"),
    (
        border_rules.strayed_state_changes,
        "controller/tasks/reap.py",
        "update(Job).where(old).values(state='lost')",
    ),
    (border_rules.strayed_state_changes, "controller/db/jobs.py", "setattr(row, 'state', new)"),
    (border_rules.clocks_in_pure_code, "measures/metrics/latency.py", "import time\nx = time.time()"),
    (border_rules.clocks_in_pure_code, "controller/states/work.py", "x = datetime.datetime.now(UTC)"),
    (border_rules.clocks_in_pure_code, "dashboard/figures/live.py", "from time import monotonic_ns"),
]
ALLOWED = [
    (border_rules.strayed_wire_facts, "contract/routes.py", "x = '/v1/runs'"),
    (border_rules.strayed_wire_facts, "client/api.py", "def f():\n    '/v1/runs'"),
    (border_rules.strayed_phone_imports, "device_agent/ios_worker/link.py", "import pymobiledevice3"),
    (
        border_rules.strayed_phone_imports,
        "device_agent/virtual/protocols/dtx.py",
        "import pymobiledevice3.dtx",
    ),
    (border_rules.strayed_torch_imports, "runtime/model/llama.py", "import torch"),
    (border_rules.strayed_torch_imports, "runtime/tiers/native/tier.py", "import torch"),
    (border_rules.strayed_commits, "controller/db/session.py", "session.commit()"),
    (border_rules.strayed_commits, "device_agent/collect/spool.py", "connection.commit()"),
    (border_rules.strayed_state_changes, "controller/protocol/transitions.py", "row.state = new"),
    (border_rules.strayed_state_changes, "controller/api/live.py", "self.state = new"),
    (border_rules.strayed_state_changes, "controller/app.py", "app.state.sessions = sessions"),
    (border_rules.strayed_state_changes, "controller/db/jobs.py", "insert(Job).values(state='queued')"),
    (border_rules.clocks_in_pure_code, "controller/tasks/reap.py", "x = time.time()"),
    (border_rules.clocks_in_pure_code, "measures/metrics/latency.py", "x = sample.time()"),
]


def _name(value: object) -> str:
    return getattr(value, "__name__", "")


@pytest.mark.parametrize("rule", RULES, ids=_name)
def test_the_packages_keep_the_rule(rule: SourceRule) -> None:
    violations = [violation for source in package_sources() for violation in rule(source)]
    assert not violations, broken(violations)


def test_only_the_tests_of_the_worker_and_of_the_emulator_import_pymobiledevice3() -> None:
    violations = [found for source in sources() for found in border_rules.strayed_phone_imports(source)]
    assert not violations, broken(violations)


@pytest.mark.parametrize(("rule", "path", "text"), SEEDED, ids=_name)
def test_a_seeded_violation_is_found(rule: SourceRule, path: str, text: str) -> None:
    assert [str(violation.path) for violation in rule(Source.parse(path, text))] == [path]


@pytest.mark.parametrize(("rule", "path", "text"), ALLOWED, ids=_name)
def test_the_owner_and_look_alikes_are_not_reported(rule: SourceRule, path: str, text: str) -> None:
    assert list(rule(Source.parse(path, text))) == []
