"""How keys and values are kept, and what a token of them takes: every count of KV bytes comes from here."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KVFormat:
    """K and V of every layer, `value_bytes` for each number."""

    layers: int
    kv_heads: int
    head_dim: int
    value_bytes: int

    @property
    def token_bytes(self) -> int:
        """Bytes of KV per token."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.value_bytes

    def block_bytes(self, block_tokens: int) -> int:
        """Bytes of KV per block of `block_tokens`."""
        return self.token_bytes * block_tokens
