"""What this machine is: processor, cores that the process may use, system, memory."""

import os
import platform
from dataclasses import dataclass
from pathlib import Path

from runtime.host.memory import physical_memory_bytes

_CPUINFO = Path("/proc/cpuinfo")
_PRODUCT = Path("/sys/devices/virtual/dmi/id/product_name")
_CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")
# Without one of these a CPU computes bfloat16 slower than float32.
_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})


@dataclass(frozen=True, slots=True)
class Machine:
    """cores: those that the process may use, a quota of its control group included."""

    device_model: str
    cpu: str
    has_bf16: bool
    cores: int
    os_name: str
    os_version: str
    os_build: str
    memory_bytes: int | None


def this_machine() -> Machine:
    """Read from the system; what it does not say is named generically."""
    cpuinfo = _read(_CPUINFO)
    fields = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in reversed(cpuinfo.splitlines()))
    }
    cpu = fields.get("model name") or platform.processor() or platform.machine()
    flags = set((fields.get("flags") or fields.get("features") or "").split())
    os_name, os_version = _system()
    return Machine(
        device_model=_read(_PRODUCT).strip() or f"{platform.system()} {platform.machine()}",
        cpu=cpu,
        has_bf16=bool(flags & _BF16_FLAGS),
        cores=usable_cores(),
        os_name=os_name,
        os_version=os_version,
        os_build=platform.release(),
        memory_bytes=physical_memory_bytes(),
    )


def usable_cores(quota_file: Path = _CPU_QUOTA) -> int:
    """Cores that this process may use at once, at least 1."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # no such call on macOS
        cores = os.cpu_count() or 1
    quota, _, period = _read(quota_file).strip().partition(" ")
    if quota.isdigit() and period.isdigit() and int(period) > 0:
        cores = min(cores, -(-int(quota) // int(period)))
    return max(1, cores)


def _system() -> tuple[str, str]:
    if platform.system() == "Darwin":
        return "macOS", platform.mac_ver()[0]
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return platform.system(), platform.version()
    return release.get("NAME", "Linux"), release.get("VERSION_ID", "")


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
