"""What the forward pass must know of a model, whatever file it came from."""

from dataclasses import dataclass
from typing import Final

from runtime.kv.kv_format import KVFormat

SUPPORTED_ARCHITECTURES: Final = ("llama", "qwen2", "qwen3")
_FLOAT32_MAX: Final = (2 - 2**-23) * 2.0**127


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Shape of a decoder of the Llama family; raises ValueError naming the field that makes no sense.

    qwen2 adds a bias to q, k and v; qwen3 normalises each q and k head. context_tokens: trained positions.
    """

    architecture: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    rope_base: float
    rms_eps: float
    context_tokens: int
    tied_head: bool

    def __post_init__(self) -> None:
        for name in ("hidden", "layers", "heads", "kv_heads", "head_dim", "ffn", "vocab", "context_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, it is {getattr(self, name)}")
        if self.heads % self.kv_heads:
            raise ValueError(f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads})")
        if self.head_dim % 2:
            raise ValueError(f"head_dim must be even for rotary positions, it is {self.head_dim}")
        # Beyond float32 they would become infinite where they are used, and every answer silently the same.
        if not (0 < self.rope_base <= _FLOAT32_MAX and 0 < self.rms_eps <= _FLOAT32_MAX):
            found = f"they are {self.rope_base} and {self.rms_eps}"
            raise ValueError(f"rope_base and rms_eps must be positive numbers, {found}")
        if self.context_tokens < 2:
            raise ValueError("context_tokens must be at least 2, for a prompt and what follows it")

    @property
    def has_qkv_bias(self) -> bool:
        return self.architecture == "qwen2"

    @property
    def has_qk_norm(self) -> bool:
        return self.architecture == "qwen3"

    @property
    def q_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim

    def kv_format(self, value_bytes: int) -> KVFormat:
        """Of this model's KV in numbers of `value_bytes`."""
        return KVFormat(self.layers, self.kv_heads, self.head_dim, value_bytes)
