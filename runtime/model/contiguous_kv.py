"""The baseline's cache: one sequence, one piece of memory, nothing shared, nothing kept."""

from torch import Tensor

from runtime.model.attention import causal_bias, chunk_attention
from runtime.model.config import ModelConfig
from runtime.model.forward_batch import ForwardBatch, KVStorage
from runtime.model.numeric import Placement, zero_pages


class ContiguousKV:
    """Per layer [capacity_tokens, 2, kv_heads, head_dim]; filled from the front by one sequence."""

    def __init__(self, config: ModelConfig, capacity_tokens: int, placement: Placement) -> None:
        shape = (capacity_tokens, 2, config.kv_heads, config.head_dim)
        self._layers = [zero_pages(shape, placement) for _ in range(config.layers)]
        self.capacity_tokens = capacity_tokens
        self.kv_bytes = sum(layer.nbytes for layer in self._layers)

    @property
    def storage(self) -> KVStorage:
        """One block of the whole capacity."""
        return KVStorage(self._layers, self.capacity_tokens)

    def block_tables(self, batch: ForwardBatch) -> tuple[tuple[int, ...], ...]:
        """ValueError unless the batch is one span that fits the capacity."""
        if len(batch.spans) != 1:
            raise ValueError(f"the contiguous cache holds one sequence, the batch has {len(batch.spans)}")
        span = batch.spans[0]
        if span.context_tokens > self.capacity_tokens:
            raise ValueError(f"{span.context_tokens} tokens, capacity {self.capacity_tokens}")
        return ((0,),)

    def begin(self, batch: ForwardBatch) -> "ContiguousAttention":
        """As `block_tables` refuses."""
        self.block_tables(batch)
        (span,) = batch.spans
        return ContiguousAttention(self._layers, span.start_tokens, span.context_tokens)

    def free(self) -> None:
        """Let go of the tensors; the cache cannot be used afterwards."""
        self._layers.clear()


class ContiguousAttention:
    """One pass of one sequence over rows [start, end) of its cache."""

    def __init__(self, layers: list[Tensor], start: int, end: int) -> None:
        self._layers = layers
        self._start = start
        self._end = end
        self._bias = causal_bias(end - start, end, layers[0])

    def attend(self, layer: int, q: Tensor, kv: Tensor) -> Tensor:
        rows = self._layers[layer]
        rows[self._start : self._end] = kv
        seen = rows[: self._end]
        return chunk_attention(q, seen[:, 0], seen[:, 1], self._bias)
