"""Under what this attempt is measured: machine, model and engine, recorded before the first trial."""

import hashlib
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from contract.calibration import CalibrationKey
from contract.events import ArmConditions, Conditions, ConditionsRecorded, Producer
from contract.jobs import AttemptSpec
from runtime.engine.compute import ComputeSetup
from runtime.errors import ModelFileMissingError
from runtime.host.machine import Machine
from runtime.measured.emit import PENDING_SEQ
from runtime.model.config import ModelConfig

RUNTIME_NAME = "dynofarm-torch"
_CHUNK_BYTES = 1 << 20


def installed_version(distribution: str) -> str:
    """`unknown` when it is not installed as a distribution."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "unknown"


def producer(commit: str) -> Producer:
    """Who writes the streams; `commit` names the build."""
    return Producer(name=RUNTIME_NAME, version=installed_version("dynofarm"), build=commit)


def model_digest(path: Path) -> str:
    """sha256 of a model file; of a folder, over its files' names and digests in order of the names."""
    try:
        path.stat()  # globbing in a folder that is not there finds nothing and says nothing
        if path.is_file():
            return f"sha256:{_file_sha256(path).hexdigest()}"
        whole = hashlib.sha256()
        for file in _model_files(path):
            whole.update(f"{file.relative_to(path).as_posix()}\0{_file_sha256(file).hexdigest()}\n".encode())
        return f"sha256:{whole.hexdigest()}"
    except OSError as error:
        raise ModelFileMissingError(
            Path(error.filename or path), error.strerror or "cannot be read"
        ) from error


def _model_files(folder: Path) -> Iterator[Path]:
    # Ordinary files: a pipe or a device with such a name would be read for ever.
    yield from sorted(
        file
        for file in folder.rglob("*")
        if file.suffix in (".safetensors", ".json", ".model") and file.is_file()
    )


def _file_sha256(path: Path) -> "hashlib._Hash":
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest


def parameter_count(config: ModelConfig) -> int:
    """Weights of the model, a tied head counted once."""
    tables = config.vocab * config.hidden * (1 if config.tied_head else 2)
    attention = config.hidden * (2 * config.q_width + 2 * config.kv_width)
    if config.has_qkv_bias:
        attention += config.q_width + 2 * config.kv_width
    if config.has_qk_norm:
        attention += 2 * config.head_dim
    layer = attention + 3 * config.hidden * config.ffn + 2 * config.hidden
    return tables + config.layers * layer + config.hidden


def calibration_key(compute: ComputeSetup, machine: Machine, digest: str) -> CalibrationKey:
    """What values measured here and now depend on."""
    return CalibrationKey(
        model_digest=digest,
        runtime_version=installed_version("dynofarm"),
        torch_version=installed_version("torch"),
        cpu=machine.cpu[:200],
        cores=machine.cores,
        device=compute.placement.device.type,
        tier=compute.tier.name,
        dtype=compute.dtype,
        weight_dtype=compute.weight_dtype,
    )


def conditions_event(
    spec: AttemptSpec, machine: Machine, config: ModelConfig, digest: str, arms: dict[str, ArmConditions]
) -> ConditionsRecorded:
    """`arms`: per arm its tier, dtype, threads and more; the event names those of the first arm on top."""
    first = arms[spec.arms[0].arm]
    return ConditionsRecorded(
        seq=PENDING_SEQ,
        t_mono_ns=time.monotonic_ns(),
        conditions=Conditions(
            device_model=machine.device_model,
            os_name=machine.os_name,
            os_version=machine.os_version,
            os_build=machine.os_build,
            cpu=machine.cpu,
            cores=machine.cores,
            memory_bytes=machine.memory_bytes,
            runtime_name=RUNTIME_NAME,
            runtime_version=installed_version("dynofarm"),
            tier=first.tier,
            dtype=first.dtype,
            threads=first.threads,
            model_name=spec.model,
            model_digest=digest,
            model_parameters=parameter_count(config),
            arms=arms,
            extra={"torch": installed_version("torch"), "architecture": config.architecture},
        ),
    )
