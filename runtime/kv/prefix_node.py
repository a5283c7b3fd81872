"""A node of the prefix tree: the content of one block, after everything its parents hold."""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from hashlib import sha256
from typing import TypeAlias

from runtime.kv.block_pool import NULL_BLOCK
from runtime.kv.observer import NO_HOLDER

BlockHash: TypeAlias = Callable[[bytes, Sequence[int]], bytes]
"""(parent digest, token ids of the block) -> digest."""


class NodeState(Enum):
    """pending: its leader is computing it. ready: a block holds it. dropped: no longer in the tree."""

    PENDING = "pending"
    READY = "ready"
    DROPPED = "dropped"


@dataclass(eq=False, slots=True)
class PrefixNode:
    """`tokens` fill a block, or fewer for a tail; `block` is NULL_BLOCK until ready; tails have no digest."""

    parent: "PrefixNode | None"
    tokens: tuple[int, ...]
    digest: bytes
    state: NodeState
    block: int = NULL_BLOCK
    leader: int = NO_HOLDER
    """Who is computing it while pending."""
    children: dict[int, dict["PrefixNode", None]] = field(default_factory=dict)
    """By first token, oldest first: partial matching looks only at children that can share a token."""

    def adopt(self, child: "PrefixNode") -> None:
        """Links `child` below this node."""
        self.children.setdefault(child.tokens[0], {})[child] = None

    def unlink(self) -> None:
        """Takes this node out of its parent's children."""
        if self.parent is None:
            return
        bucket = self.parent.children[self.tokens[0]]
        del bucket[self]
        if not bucket:
            del self.parent.children[self.tokens[0]]


def hash_block(parent_digest: bytes, tokens: Sequence[int]) -> bytes:
    """SHA-256 of the parent's digest and the token ids as little-endian u32; the same in every language."""
    return sha256(parent_digest + struct.pack(f"<{len(tokens)}I", *tokens)).digest()


def root_digest(salt: str) -> bytes:
    """Digest above the first block: different salts (model, precision, adapter, tenant) share nothing."""
    return sha256(b"dynofarm-kv-v1\0" + salt.encode()).digest()


def common_run(tokens: Sequence[int], start: int, limit: int, content: Sequence[int]) -> int:
    """How many of `content`'s leading tokens equal `tokens[start:limit]`'s."""
    run = 0
    for expected, position in zip(content, range(start, limit), strict=False):
        if tokens[position] != expected:
            break
        run += 1
    return run
