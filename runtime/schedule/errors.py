"""Refusals of the scheduler: each means that its caller broke the step, commit, step, commit order."""

from contract.failures import FailureReason
from runtime.errors import RuntimeFault


class InvalidTransitionError(RuntimeFault, kind="sequence-transition", reason=FailureReason.RUNTIME_EXIT):
    """`sequence` in `status` cannot take `cause`; the table in sequence.py has no such edge."""

    def __init__(self, sequence: int, status: str, cause: str) -> None:
        super().__init__(f"sequence {sequence} is {status} and cannot be {cause}")
        self.sequence = sequence
        self.status = status
        self.cause = cause


class UnknownSequenceError(RuntimeFault, kind="sequence-unknown", reason=FailureReason.RUNTIME_EXIT):
    """No live sequence has this id, or another has it already."""

    def __init__(self, sequence: int, reason: str) -> None:
        super().__init__(f"sequence {sequence}: {reason}")
        self.sequence = sequence


class StepOrderError(RuntimeFault, kind="step-order", reason=FailureReason.RUNTIME_EXIT):
    """A step was asked for before the last batch was committed, or a commit for another batch."""

    def __init__(self, step: int, reason: str) -> None:
        super().__init__(f"step {step}: {reason}")
        self.step = step


class MissingSampleError(RuntimeFault, kind="sample-missing", reason=FailureReason.RUNTIME_EXIT):
    """`sequence` asked for logits in `step` and the commit has no token for it; nothing was committed."""

    def __init__(self, sequence: int, step: int) -> None:
        super().__init__(f"step {step} sampled no token for sequence {sequence}")
        self.sequence = sequence
        self.step = step
