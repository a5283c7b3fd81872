"""The same farm on PostgreSQL and Redis: two API replicas, a Celery worker, a beat, an agent."""

import os
import pwd
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from pydantic import SecretStr

from client.api import DynofarmClient
from client.event_audit import audit_run
from client.farm_home import FarmHome
from contract.administration import EnrollmentTokenRequest
from contract.rest import RunRequest
from contract.states import JobOutcome, RunState
from tests.e2e.live_farm import MODEL, ROOT, WORKLOAD, wait_for
from tests.fakes.tiny_model import save_tiny_model

POSTGRES = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)), None)
REDIS = shutil.which("redis-server")

pytestmark = [
    pytest.mark.skipif(POSTGRES is None, reason="PostgreSQL's server is not installed (Debian: postgresql)"),
    pytest.mark.skipif(REDIS is None, reason="Redis is not installed (Debian: redis-server)"),
]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def as_postgres(arguments: list[str]) -> list[str]:
    """PostgreSQL refuses to run as root; elsewhere it runs as whoever runs the test."""
    if os.getuid() != 0:
        return arguments
    return ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups", *arguments]


def is_served(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def process(arguments: list[str], log: Path, environment: dict[str, str]) -> Iterator[None]:
    with log.open("wb") as output:
        child = subprocess.Popen(arguments, cwd=ROOT, env=environment, stdout=output, stderr=output)
    try:
        yield
    finally:
        child.terminate()
        try:
            child.wait(timeout=30)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait(timeout=10)


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """A database server of our own on loopback; its address for SQLAlchemy."""
    assert POSTGRES is not None
    folder.mkdir()
    if os.getuid() == 0:
        owner = pwd.getpwnam("postgres")
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    data, port = folder / "data", free_port()
    initdb = [str(POSTGRES), "-D", str(data), "-A", "trust", "-U", "postgres", "--no-sync"]
    subprocess.run(as_postgres(initdb), check=True, capture_output=True, timeout=120, cwd="/")
    address = ["-p", str(port), "-h", "127.0.0.1"]
    server = [str(POSTGRES.parent / "postgres"), "-D", str(data), *address, "-k", ""]
    with process(as_postgres(server), folder.parent / "postgres.log", {"PATH": os.environ["PATH"]}):
        ask = [str(POSTGRES.parent / "pg_isready"), *address, "-q"]
        wait_for(lambda: subprocess.run(ask, timeout=20).returncode == 0, "PostgreSQL")
        yield f"postgresql+psycopg://postgres@127.0.0.1:{port}/postgres"


@pytest.fixture
def place() -> Iterator[Path]:
    """Outside of pytest's own folders: those are closed to the user that PostgreSQL runs as."""
    folder = Path(tempfile.gettempdir()) / f"dynofarm-test-{secrets.token_hex(6)}"
    folder.mkdir(mode=0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


class DistributedFarm:
    """Every role a process of its own, as the README sets it up; ends with its ExitStack."""

    def __init__(self, place: Path, stack: ExitStack) -> None:
        self.home = place / "home"
        self._place, self._stack = place, stack
        save_tiny_model(self.home / "models" / MODEL)
        self.ports = (free_port(), free_port())
        redis_port = free_port()
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("DYNOFARM_")},
            "DYNOFARM_DATABASE_URL": stack.enter_context(postgres(place / "postgres")),
            "DYNOFARM_BROKER_URL": f"redis://127.0.0.1:{redis_port}/0",
            "DYNOFARM_HOME": str(self.home),
            "DYNOFARM_SESSION_SECRET": b64encode(secrets.token_bytes(32)).decode(),
        }
        self._start("redis", [str(REDIS), "--port", str(redis_port), "--bind", "127.0.0.1", "--save", ""])

    def start_controllers(self) -> DynofarmClient:
        """Two replicas, a worker, a beat; a client of the first replica."""
        for command in ("migrate", "admin-token"):
            arguments = [sys.executable, "-m", "controller", command]
            subprocess.run(arguments, env=self._environment, cwd=ROOT, check=True, timeout=120)
        for port in self.ports:
            self._start(f"api-{port}", [sys.executable, "-m", "controller", "serve", "--port", str(port)])
        celery = [sys.executable, "-m", "celery", "-A", "controller.tasks.worker"]
        self._start("worker", [*celery, "worker", "-c", "1"])
        self._start("beat", [*celery, "beat", "-s", str(self._place / "beat")])
        wait_for(lambda: all(is_served(port) for port in self.ports), "both replicas")
        token = SecretStr((self.home / "admin-token").read_text().strip())
        return self._stack.enter_context(DynofarmClient(f"http://127.0.0.1:{self.ports[0]}", token))

    def start_agent(self, client: DynofarmClient) -> None:
        """On the second replica."""
        self._environment["DYNOFARM_ENROLLMENT_TOKEN"] = client.enrollment_token(
            EnrollmentTokenRequest()
        ).token
        controller = f"http://127.0.0.1:{self.ports[1]}"
        arguments = ["-m", "device_agent", "--home", str(self.home), "--controller", controller]
        self._start("agent", [sys.executable, *arguments])
        wait_for(lambda: any(MODEL in device.models for device in client.devices().devices), "the device")

    def _start(self, name: str, arguments: list[str]) -> None:
        self._stack.enter_context(process(arguments, self._place / f"{name}.log", dict(self._environment)))


def test_two_replicas_on_postgresql_and_redis_run_a_job_and_lose_nothing(place: Path) -> None:
    request = {
        "workload": {"source": WORKLOAD},
        "model": MODEL,
        "repetitions": 5,
        "engine": {"dtype": "float32", "threads": 1},
    }
    with ExitStack() as stack:
        farm = DistributedFarm(place, stack)
        client = farm.start_controllers()
        farm.start_agent(client)
        run_id = client.submit(RunRequest.model_validate(request)).run_id
        wait_for(lambda: client.run(run_id).state is RunState.COMPLETED, "the run's end")
        run = client.run(run_id)
        assert run.jobs[0].outcome is JobOutcome.SUCCEEDED
        audit = audit_run(client, FarmHome(farm.home), run)
        assert (audit.lost, audit.duplicated) == (0, 0)
        assert audit.written > 100
        assert client.gate(run_id).metrics[0].pairs == 5
