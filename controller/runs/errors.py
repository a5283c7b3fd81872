"""What can be wrong with a submission or a question about results, beside the errors that all share."""

from contract.problems import ProblemCode
from controller.errors import BadRequestError, FarmError


class BudgetTooSmallError(BadRequestError):
    """The KV pool that was asked for can never hold the workload's longest sequence."""

    kind = ProblemCode.BUDGET_TOO_SMALL

    def __init__(self, pointer: str, asked_tokens: int, needed_tokens: int) -> None:
        """`needed_tokens` is a lower bound: what the longest sequence has for certain."""
        super().__init__(
            pointer,
            f"a pool of {asked_tokens} tokens cannot hold the workload's longest sequence: "
            f"set kv_pool_tokens to {needed_tokens} or more, or use shorter agents",
        )
        self.needed_tokens = needed_tokens


class NotComparableError(FarmError):
    """The two runs did not measure the same thing; `differences` names what stands against it."""

    kind = ProblemCode.NOT_COMPARABLE

    def __init__(self, differences: tuple[str, ...]) -> None:
        """`differences` such as `device_model: A and B`."""
        super().__init__(
            f"these runs are not of the same thing ({'; '.join(differences)}). "
            "Compare others, or add force=true to see the figures side by side all the same"
        )
        self.differences = differences


class ResultNotReadyError(FarmError):
    """The run goes on: what was asked for exists once it is completed."""

    kind = ProblemCode.RESULT_NOT_READY

    def __init__(self, run_id: str, what: str) -> None:
        super().__init__(f"run {run_id} is not completed, so it has no {what} yet; ask again later")
