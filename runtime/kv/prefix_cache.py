"""Prefixes computed once: a hash chain over full blocks, partial tails, and pending prefixes.

The nodes form a tree that is always connected to the root: what cannot be reached is not kept. A full block
is found by its digest and then compared token for token: a hash collision is a miss, never a wrong answer.
Inside the next block the longest common run with a cached child counts, to the token.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile

from runtime.kv.block_pool import BlockPool
from runtime.kv.prefix_node import BlockHash, NodeState, PrefixNode, common_run, hash_block, root_digest

TAIL_CANDIDATES = 64
"""Newest children that are compared with what follows the last full block: bounds a match's cost."""


@dataclass(frozen=True, slots=True)
class TailMatch:
    """The first `tokens` slots of `source` continue the match: copy them, or take an idle block over."""

    source: int
    tokens: int


@dataclass(frozen=True, slots=True)
class PrefixMatch:
    """What is cached of a prompt; nothing is held until a block table joins it.

    `pending` is the deepest node that a leader is computing; it would extend the match by `pending_tokens`.
    """

    nodes: tuple[PrefixNode, ...]
    tail: TailMatch | None
    matched_tokens: int
    pending: PrefixNode | None = None
    pending_tokens: int = 0

    @property
    def blocks(self) -> tuple[int, ...]:
        """Full blocks to share, in order."""
        return tuple(node.block for node in self.nodes)

    def without_tail(self) -> "PrefixMatch":
        """The same match of full blocks only."""
        tail_tokens = self.tail.tokens if self.tail else 0
        return replace(self, tail=None, matched_tokens=self.matched_tokens - tail_tokens)


class PrefixCache:
    """Cached content of `pool`'s blocks under `salt`; the pool decides what is evicted, and says so."""

    def __init__(self, pool: BlockPool, salt: str = "", block_hash: BlockHash = hash_block) -> None:
        self.pool = pool
        self._hash = block_hash
        self.root = PrefixNode(None, (), root_digest(salt), NodeState.READY)
        self._full: dict[bytes, PrefixNode] = {}
        self._by_block: dict[int, PrefixNode] = {}
        self._pending: dict[int, list[PrefixNode]] = {}
        self.changes = 0
        """Grows with every node that comes, is filled or goes; between two such, `match` says the same."""
        pool.on_evict(self.forget)

    def __len__(self) -> int:
        """Blocks with cached content, held or idle."""
        return len(self._by_block)

    def match(self, tokens: Sequence[int]) -> PrefixMatch:
        """The longest cached prefix of `tokens`, at least one token short: its logits must be computed."""
        limit = len(tokens) - 1
        path = list(self._walk(tokens, limit))
        ready = list(takewhile(lambda node: node.state is NodeState.READY, path))
        start = len(ready) * self.pool.block_tokens
        best, run = self._longest_run((self.root, *ready)[-1], tokens, (start, limit), NodeState.READY)
        tail = TailMatch(best.block, run) if best else None
        match = PrefixMatch(tuple(ready), tail, start + run)
        return self._with_pending(match, path, tokens, limit)

    def reserve(self, leader: int, node: PrefixNode, tokens: Sequence[int]) -> None:
        """Announces that `leader` computes `tokens` after full-block `node`: others may wait for it.

        Nodes that exist already stay as they are.
        """
        size = self.pool.block_tokens
        full = len(tokens) // size * size
        announced = self._pending.setdefault(leader, [])
        for start in range(0, full, size):
            content = tuple(tokens[start : start + size])
            child = self._child(node, content)
            if child is None:
                digest = self._hash(node.digest, content)
                if digest in self._full:
                    return  # a collision: this content cannot be found by its digest
                child = self._add(node, content, digest)
                child.leader = leader
                announced.append(child)
            node = child
        if full < len(tokens):
            tail = self._add(node, tuple(tokens[full:]), b"")
            tail.leader = leader
            announced.append(tail)

    def abandon(self, leader: int) -> None:
        """Drops what `leader` announced and has not computed; followers must look again."""
        for node in self._pending.pop(leader, ()):
            if node.state is NodeState.PENDING:
                self._drop(node)

    def publish(self, parent: PrefixNode, block: int, tokens: Sequence[int]) -> PrefixNode | None:
        """Full `block` holds `tokens` after `parent`; returns the node that now stands for this content.

        Its block differs from `block` when the content was cached before: share that one instead. None when
        it cannot be cached (hash collision, or the parent is gone).
        """
        content = tuple(tokens)
        if parent.state is not NodeState.READY:
            return None
        digest = self._hash(parent.digest, content)
        node = self._full.get(digest)
        if node is not None and (node.parent is not parent or node.tokens != content):
            return None
        own = self._by_block.get(block)
        if own is not None and own is not node:
            self._drop(own)  # it was published as a tail while it filled
        if node is None:
            node = self._add(parent, content, digest)
        if node.state is NodeState.PENDING:
            self._fill(node, block)
        return node

    def publish_tail(self, parent: PrefixNode, block: int, tokens: Sequence[int]) -> None:
        """The first slots of `block` hold `tokens` after `parent`; its holder may go on writing behind them.

        Not kept where an equal or longer cached run exists; idle shorter ones are dropped.
        """
        content = tuple(tokens)
        own = self._by_block.get(block)
        if parent.state is not NodeState.READY or (own and len(own.tokens) >= len(content)):
            return
        announced = next(
            (n for n in self._newest(parent, content[0], NodeState.PENDING) if n.tokens == content), None
        )
        for child in self._newest(parent, content[0], NodeState.READY):
            run = common_run(content, 0, len(content), child.tokens)
            if child is not own and run == len(content):
                return
            if child is not own and run == len(child.tokens) and not self.pool.ref_count(child.block):
                self._drop(child)
        if own:
            self._drop(own)
        self._fill(announced or self._add(parent, content, b""), block)

    def forget(self, block: int) -> None:
        """Drops the content of `block`, and what follows it, from the cache; no effect when not cached."""
        node = self._by_block.get(block)
        if node is not None:
            self._drop(node)

    def nodes(self) -> Iterator[PrefixNode]:
        """Every node below the root, parents first."""
        level = [self.root]
        while level:
            level = [child for node in level for bucket in node.children.values() for child in bucket]
            yield from level

    def _walk(self, tokens: Sequence[int], limit: int) -> Iterator[PrefixNode]:
        node, size = self.root, self.pool.block_tokens
        for start in range(0, limit - size + 1, size):
            child = self._child(node, tuple(tokens[start : start + size]))
            if child is None:
                return
            yield child
            node = child

    def _child(self, parent: PrefixNode, content: tuple[int, ...]) -> PrefixNode | None:
        if content[0] not in parent.children:
            return None
        node = self._full.get(self._hash(parent.digest, content))
        if node is None or node.parent is not parent or node.tokens != content:
            return None
        return node

    def _newest(self, node: PrefixNode, first_token: int, state: NodeState) -> list[PrefixNode]:
        bucket = reversed(node.children.get(first_token, {}))
        return list(islice((child for child in bucket if child.state is state), TAIL_CANDIDATES))

    def _longest_run(
        self, node: PrefixNode, tokens: Sequence[int], span: tuple[int, int], state: NodeState
    ) -> tuple[PrefixNode | None, int]:
        start, limit = span
        best, best_run = None, 0
        if start >= limit:
            return best, best_run
        for child in self._newest(node, tokens[start], state):
            run = common_run(tokens, start, limit, child.tokens)
            if run > best_run:
                best, best_run = child, run
        return best, best_run

    def _with_pending(
        self, match: PrefixMatch, path: list[PrefixNode], tokens: Sequence[int], limit: int
    ) -> PrefixMatch:
        reach = len(path) * self.pool.block_tokens
        last = path[-1] if path else self.root
        best, run = self._longest_run(last, tokens, (reach, limit), NodeState.PENDING)
        deepest = best or (last if last.state is NodeState.PENDING else None)
        gain = reach + run - match.matched_tokens
        if deepest is None or gain <= 0:
            return match
        return replace(match, pending=deepest, pending_tokens=gain)

    def _add(self, parent: PrefixNode, content: tuple[int, ...], digest: bytes) -> PrefixNode:
        node = PrefixNode(parent, content, digest, NodeState.PENDING)
        self.changes += 1
        parent.adopt(node)
        if digest:
            self._full[digest] = node
        return node

    def _fill(self, node: PrefixNode, block: int) -> None:
        node.state, node.block = NodeState.READY, block
        self.changes += 1
        self._by_block[block] = node
        self.pool.publish(block, len(node.tokens))

    def _drop(self, node: PrefixNode) -> None:
        """Forgets `node` and all below it, which nobody could reach any more."""
        node.unlink()
        self.changes += 1
        doomed = [node]
        while doomed:
            gone = doomed.pop()
            doomed += [child for bucket in gone.children.values() for child in bucket]
            gone.children = {}
            gone.state = NodeState.DROPPED
            if gone.digest:
                del self._full[gone.digest]
            if self._by_block.pop(gone.block, None):
                self.pool.unpublish(gone.block)
