"""Refusals of the KV accounting. Exhaustion is an answer; the others mean that a caller is wrong."""

from contract.failures import FailureReason
from runtime.errors import RuntimeFault


class PoolExhaustedError(RuntimeFault, kind="kv-pool-exhausted", reason=FailureReason.BUDGET_TOO_SMALL):
    """`needed_blocks` were asked for at once and `available_blocks` were free or idle; none was taken."""

    def __init__(self, needed_blocks: int, available_blocks: int) -> None:
        super().__init__(f"{needed_blocks} KV blocks needed at once, {available_blocks} available")
        self.needed_blocks = needed_blocks
        self.available_blocks = available_blocks


class NullBlockError(RuntimeFault, kind="kv-null-block", reason=FailureReason.RUNTIME_EXIT):
    """`block` is the null block or no block of this pool."""

    def __init__(self, block: int, capacity: int) -> None:
        super().__init__(f"block {block} is none of the pool's blocks 0..{capacity - 1}")
        self.block = block


class BlockNotHeldError(RuntimeFault, kind="kv-block-not-held", reason=FailureReason.RUNTIME_EXIT):
    """`action` was asked of `block`, which nobody holds (or pins); a double free ends here."""

    def __init__(self, action: str, block: int) -> None:
        super().__init__(f"cannot {action} block {block}: nobody holds it")
        self.action = action
        self.block = block


class PublishRefusedError(RuntimeFault, kind="kv-publish-refused", reason=FailureReason.RUNTIME_EXIT):
    """`block` cannot be published with `tokens` tokens, for the reason in the text."""

    def __init__(self, block: int, tokens: int, reason: str) -> None:
        super().__init__(f"cannot publish {tokens} tokens of block {block}: {reason}")
        self.block = block
        self.tokens = tokens


class TableRangeError(RuntimeFault, kind="kv-table-range", reason=FailureReason.RUNTIME_EXIT):
    """A block table of `length_tokens` was asked for `asked_tokens`, which it does not have."""

    def __init__(self, asked_tokens: int, length_tokens: int) -> None:
        super().__init__(f"{asked_tokens} tokens asked of a block table of {length_tokens}")
        self.asked_tokens = asked_tokens
        self.length_tokens = length_tokens
