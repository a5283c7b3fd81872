"""Why something failed: a closed registry. Each reason says who must act and what to try.

The classes of fault follow the error types of LAVA (lavasoftware.org); see ADR 0006.
"""

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class Fault(StrEnum):
    """Who must act."""

    JOB = "job"
    RUNTIME = "runtime"
    DEVICE = "device"
    LAB = "lab"
    FARM_BUG = "farm_bug"


class FailureReason(StrEnum):
    """One failure. Stored with attempts, sent in events; never renamed, only added to."""

    BAD_SPEC = "bad_spec"
    CONTRACT_VERSION = "contract_version"
    BUDGET_TOO_SMALL = "budget_too_small"
    CONTEXT_OVERFLOW = "context_overflow"
    UNKNOWN_SAMPLING_PARAMETER = "unknown_sampling_parameter"
    MODEL_MISSING = "model_missing"
    MODEL_CORRUPT = "model_corrupt"
    UNSUPPORTED_ARCHITECTURE = "unsupported_architecture"
    WRONG_TOKENIZER = "wrong_tokenizer"
    NON_FINITE_LOGITS = "non_finite_logits"
    CONTAMINATION = "contamination"
    MEMORY_AT_START = "memory_at_start"
    BUFFER_TOO_LARGE = "buffer_too_large"
    JETSAM = "jetsam"
    APP_CRASH = "app_crash"
    WATCHDOG_KILLED = "watchdog_killed"
    KILLED_OUTSIDE = "killed_outside"
    RUNTIME_EXIT = "runtime_exit"
    RUNTIME_STALLED = "runtime_stalled"
    EVENTS_INVALID = "events_invalid"
    ANALYSIS_FAILED = "analysis_failed"
    LEASE_EXPIRED = "lease_expired"
    PREPARE_TIMEOUT = "prepare_timeout"
    RUN_TIMEOUT = "run_timeout"
    UPLOAD_TIMEOUT = "upload_timeout"
    ACCEPT_TIMEOUT = "accept_timeout"
    INSTALL_TIMEOUT = "install_timeout"
    DEVICE_DISCONNECTED = "device_disconnected"
    DEVICE_REBOOTED = "device_rebooted"
    TRANSPORT_LOST = "transport_lost"
    TUNNEL_LOST = "tunnel_lost"
    DDI_MOUNT = "ddi_mount"
    UNTRUSTED = "untrusted"
    DEVELOPER_MODE_OFF = "developer_mode_off"
    PASSCODE_PROMPT = "passcode_prompt"
    SIGNING = "signing"
    THERMAL_ABORT = "thermal_abort"
    BATTERY_LOW = "battery_low"
    STORAGE_DEVICE = "storage_device"
    STORAGE_HOST = "storage_host"
    HOST_SUSPENDED = "host_suspended"
    AGENT_RESTARTED = "device_agent_restarted"
    AGENT_BUG = "agent_bug"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class FailureKind:
    """What follows from a reason: who acts, whether another try may help, what to tell the person."""

    fault: Fault
    retryable: bool
    penalise_device: bool
    advice: str


def _job(advice: str) -> FailureKind:
    return FailureKind(Fault.JOB, False, False, advice)


def _runtime(advice: str) -> FailureKind:
    return FailureKind(Fault.RUNTIME, False, False, advice)


def _device(advice: str) -> FailureKind:
    return FailureKind(Fault.DEVICE, True, True, advice)


def _lab(advice: str) -> FailureKind:
    return FailureKind(Fault.LAB, True, False, advice)


FAILURES: Final = MappingProxyType(
    {
        FailureReason.BAD_SPEC: _job("correct the field that the message names and submit again"),
        FailureReason.CONTRACT_VERSION: _lab(
            "install the same dynofarm version on controller, agent and runtime"
        ),
        FailureReason.BUDGET_TOO_SMALL: _job("raise engine.kv_pool_tokens, or use fewer or shorter agents"),
        FailureReason.CONTEXT_OVERFLOW: _job("shorten the prompt or choose a model with a longer context"),
        FailureReason.UNKNOWN_SAMPLING_PARAMETER: _job(
            "remove the sampling parameter that the message names"
        ),
        FailureReason.MODEL_MISSING: _job(
            "put the model into the agent's model folder, or name one that is there"
        ),
        FailureReason.MODEL_CORRUPT: _job("fetch the model file again and compare its digest"),
        FailureReason.UNSUPPORTED_ARCHITECTURE: _job("choose a Llama, Qwen2 or Qwen3 model"),
        FailureReason.WRONG_TOKENIZER: _job("use the tokenizer that belongs to the weights"),
        FailureReason.NON_FINITE_LOGITS: _runtime(
            "try float32; if it stays, the weights or a kernel are wrong"
        ),
        FailureReason.CONTAMINATION: _runtime(
            "keep the attempt's trace and report it: sequences shared wrong blocks"
        ),
        FailureReason.MEMORY_AT_START: _job("use a smaller model, lower precision or a smaller KV pool"),
        FailureReason.BUFFER_TOO_LARGE: _job("split the KV pool over more buffers, or make it smaller"),
        FailureReason.JETSAM: _runtime(
            "lower the KV pool or the number of agents; see headroom in the report"
        ),
        FailureReason.APP_CRASH: _runtime("read the crash report attached to the attempt"),
        FailureReason.WATCHDOG_KILLED: _runtime(
            "the app's main thread did not answer the system; move work off it, see the crash report"
        ),
        FailureReason.KILLED_OUTSIDE: _lab(
            "something ended the app with a signal and left no report; keep people and other tools off the "
            "device, and compare footprint with limit: a memory kill may leave no report"
        ),
        FailureReason.RUNTIME_EXIT: _runtime("read the runtime's log attached to the attempt"),
        FailureReason.RUNTIME_STALLED: _runtime("no event came within the deadline; read the runtime's log"),
        FailureReason.EVENTS_INVALID: _runtime(
            "the runtime wrote lines that the contract refuses; read its log"
        ),
        FailureReason.ANALYSIS_FAILED: FailureKind(
            Fault.FARM_BUG, False, False, "the events are kept; report this text as a bug of dynofarm"
        ),
        FailureReason.LEASE_EXPIRED: _lab("the agent lost touch with the controller; check the network"),
        FailureReason.PREPARE_TIMEOUT: _device(
            "preparing took too long; check the device and the model's size"
        ),
        FailureReason.RUN_TIMEOUT: _job("raise limits.run_s or make the workload smaller"),
        FailureReason.UPLOAD_TIMEOUT: _lab("check the network between agent and controller"),
        FailureReason.ACCEPT_TIMEOUT: _lab("the agent did not start the attempt in time; check the agent"),
        FailureReason.INSTALL_TIMEOUT: _device("restart the device; if it stays, reinstall the app"),
        FailureReason.DEVICE_DISCONNECTED: _device("check cable, port and hub of the device"),
        FailureReason.DEVICE_REBOOTED: _device(
            "the device restarted in the middle; unlock it, and look for a panic report if it happens again"
        ),
        FailureReason.TRANSPORT_LOST: _device("the connection to the app was cut; check cable, port and hub"),
        FailureReason.TUNNEL_LOST: _device(
            "the tunnel to the device died; it is rebuilt on the next attempt"
        ),
        FailureReason.DDI_MOUNT: _device("unlock the device and mount the developer disk image again"),
        FailureReason.UNTRUSTED: _device("unlock the device and tap Trust"),
        FailureReason.DEVELOPER_MODE_OFF: _device("switch on Settings, Privacy & Security, Developer Mode"),
        FailureReason.PASSCODE_PROMPT: _device(
            "enter the passcode on the device; lab devices should have none"
        ),
        FailureReason.SIGNING: _lab("renew the provisioning profile, or add the device to it"),
        FailureReason.THERMAL_ABORT: _device("let the device cool down"),
        FailureReason.BATTERY_LOW: _device("charge the device"),
        FailureReason.STORAGE_DEVICE: _device("free space on the device"),
        FailureReason.STORAGE_HOST: _lab("free space on the agent's disk"),
        FailureReason.HOST_SUSPENDED: _lab("keep the agent's machine awake"),
        FailureReason.AGENT_RESTARTED: _lab(
            "the agent restarted and its runtime had ended; the job is tried again"
        ),
        FailureReason.AGENT_BUG: FailureKind(Fault.FARM_BUG, True, False, "report it with the agent's log"),
        FailureReason.CANCELLED: _job("it was cancelled; submit again if that was not meant"),
    }
)
