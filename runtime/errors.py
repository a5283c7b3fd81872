"""Every failure that the runtime can name. Who must act and what to try come from contract.failures."""

from pathlib import Path
from typing import ClassVar

from contract.failures import FAILURES, FailureReason, Fault


class RuntimeFault(Exception):  # noqa: N818 - the class of all faults; each failure below ends in Error
    """A failure with its place in the contract's registry; raise a subclass.

    kind: kebab-case, one per class. fault: who must act. advice: what to try.
    """

    reason: ClassVar[FailureReason]
    kind: ClassVar[str]
    fault: ClassVar[Fault]
    advice: ClassVar[str]

    def __init_subclass__(cls, *, kind: str, reason: FailureReason) -> None:
        cls.kind = kind
        cls.reason = reason
        cls.fault = FAILURES[reason].fault
        cls.advice = FAILURES[reason].advice


class ModelFileMissingError(RuntimeFault, kind="model-file-missing", reason=FailureReason.MODEL_MISSING):
    """The model's file or folder, or a file that it must contain, is not there."""

    def __init__(self, path: Path, detail: str = "no such file or folder") -> None:
        super().__init__(f"{path}: {detail}")
        self.path = path


class ModelFileCorruptError(RuntimeFault, kind="model-file-corrupt", reason=FailureReason.MODEL_CORRUPT):
    """The model's file contradicts itself. expected_bytes and actual_bytes are set when it is cut short."""

    def __init__(
        self, path: Path, detail: str, expected_bytes: int | None = None, actual_bytes: int | None = None
    ) -> None:
        sizes = "" if expected_bytes is None else f" (expected {expected_bytes} bytes, found {actual_bytes})"
        super().__init__(f"{path}: {detail}{sizes}")
        self.path = path
        self.expected_bytes = expected_bytes
        self.actual_bytes = actual_bytes


class UnsupportedArchitectureError(
    RuntimeFault, kind="unsupported-architecture", reason=FailureReason.UNSUPPORTED_ARCHITECTURE
):
    """The model is of a family that the runtime does not implement."""

    def __init__(self, architecture: str, supported: tuple[str, ...]) -> None:
        # The name comes out of a file and may be of any length.
        named = f"{architecture!r:.80}"
        super().__init__(f"architecture {named} is not supported; supported: {', '.join(supported)}")
        self.architecture = architecture
        self.supported = supported


class UnsupportedModelFeatureError(
    RuntimeFault, kind="unsupported-model-feature", reason=FailureReason.UNSUPPORTED_ARCHITECTURE
):
    """The family is known, but this model needs something in it that would be computed wrongly."""

    def __init__(self, feature: str, detail: str) -> None:
        super().__init__(f"{feature}: {detail}")
        self.feature = feature


class TokenizerMismatchError(RuntimeFault, kind="tokenizer-mismatch", reason=FailureReason.WRONG_TOKENIZER):
    """The tokenizer does not belong to the weights."""


class ContextOverflowError(RuntimeFault, kind="context-overflow", reason=FailureReason.CONTEXT_OVERFLOW):
    """The prompt with its output does not fit the model's context."""

    def __init__(self, prompt_tokens: int, context_tokens: int) -> None:
        super().__init__(f"{prompt_tokens} tokens do not fit a context of {context_tokens} tokens")
        self.prompt_tokens = prompt_tokens
        self.context_tokens = context_tokens


class PoolTooSmallError(RuntimeFault, kind="pool-too-small", reason=FailureReason.BUDGET_TOO_SMALL):
    """One sequence alone needs more blocks than the whole pool may have."""

    def __init__(self, needed_blocks: int, have_blocks: int, detail: str = "") -> None:
        suffix = f": {detail}" if detail else ""
        super().__init__(f"{needed_blocks} KV blocks are needed, the pool has {have_blocks}{suffix}")
        self.needed_blocks = needed_blocks
        self.have_blocks = have_blocks


class UnknownSamplingParameterError(
    RuntimeFault, kind="unknown-sampling-parameter", reason=FailureReason.UNKNOWN_SAMPLING_PARAMETER
):
    """A sampling parameter that the sampler does not have. parameter: its name."""

    def __init__(self, parameter: str, known: tuple[str, ...]) -> None:
        super().__init__(f"unknown sampling parameter {parameter!r}; known: {', '.join(known)}")
        self.parameter = parameter
        self.known = known


class InvalidSamplingParameterError(
    RuntimeFault, kind="invalid-sampling-parameter", reason=FailureReason.BAD_SPEC
):
    """A sampling parameter outside its range. parameter: its name."""

    def __init__(self, parameter: str, detail: str) -> None:
        super().__init__(f"sampling parameter {parameter!r} {detail}")
        self.parameter = parameter


class NonFiniteLogitsError(RuntimeFault, kind="non-finite-logits", reason=FailureReason.NON_FINITE_LOGITS):
    """NaN or infinity among the logits of these sequences; nothing was drawn for any sequence."""

    def __init__(self, sequence_ids: tuple[str, ...]) -> None:
        super().__init__(f"logits are not finite for {', '.join(sequence_ids)}")
        self.sequence_ids = sequence_ids


class ContaminationError(RuntimeFault, kind="contamination", reason=FailureReason.CONTAMINATION):
    """A block holds a token that is not its sequence's token at that position."""

    def __init__(self, sequence_id: str, position: int, expected_token: int, found_token: int | None) -> None:
        super().__init__(
            f"sequence {sequence_id}, position {position}: expected token {expected_token}, "
            f"the block holds {found_token}"
        )
        self.sequence_id = sequence_id
        self.position = position
        self.expected_token = expected_token
        self.found_token = found_token


class ContractVersionError(RuntimeFault, kind="contract-version", reason=FailureReason.CONTRACT_VERSION):
    """The other side speaks a version of the contract that this runtime does not know."""

    def __init__(self, found: str, supported: str) -> None:
        super().__init__(f"contract version {found!r} is not supported; this runtime speaks {supported!r}")
        self.found = found
        self.supported = supported


class LeaseExpiredError(RuntimeFault, kind="lease-expired", reason=FailureReason.LEASE_EXPIRED):
    """The lease ran out while the attempt was running: what follows must not be reported as its result."""


class BadAttemptSpecError(RuntimeFault, kind="bad-attempt-spec", reason=FailureReason.BAD_SPEC):
    """The attempt spec cannot be carried out. field: dotted path of what is wrong."""

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(f"{field}: {detail}")
        self.field = field
