"""The model in memory: loaded in named stages, one setup at a time."""

import logging
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Literal

from runtime.engine.compute import ComputeSetup
from runtime.errors import ModelFileMissingError
from runtime.host.heap import large_pieces_apart
from runtime.host.memory import give_back_memory
from runtime.model.contiguous_kv import ContiguousKV
from runtime.model.forward_batch import ForwardBatch, KVStore, Span
from runtime.model.llama import LlamaModel
from runtime.model.loader import open_weights
from runtime.model.numeric import set_compute_threads
from runtime.model.paged_kv import PagedKV
from runtime.model.tokenizer import Tokenizer
from runtime.tiers.choice import build_model

Stage = Literal["tokenizer", "weights", "pipelines", "ready"]
StageEnded = Callable[[Stage, int], None]
"""Stage and its duration in nanoseconds."""

_LOG = logging.getLogger(__name__)
_WARM_TOKENS = 64


class ModelHolder:
    """Loads the model at `path` for a setup when it is asked for, and lets the one before go.

    Stages are told of the first load only: they are those of start-up.
    """

    def __init__(self, path: Path, stage_ended: StageEnded) -> None:
        try:
            path.stat()
        except OSError as error:
            raise ModelFileMissingError(path, error.strerror or "cannot be read") from error
        self._path = path
        self._stage_ended = stage_ended
        self._tokenizer: Tokenizer | None = None
        self._model: LlamaModel | None = None
        self._setup: ComputeSetup | None = None
        self._was_loaded = False

    @property
    def tokenizer(self) -> Tokenizer:
        """Of the model that was loaded last."""
        if self._tokenizer is None:
            raise ValueError("no model was loaded yet")
        return self._tokenizer

    def model(self, setup: ComputeSetup, threads: int) -> LlamaModel:
        """The model as `setup` says, warm, with `threads` threads per operator.

        Two of them are never held at once: the footprint is that of one model.
        """
        set_compute_threads(threads)
        if self._model is None or self._setup != setup:
            self._model = None
            give_back_memory()
            if setup.tier.lost is not None:
                _LOG.warning("%s", setup.tier.lost)
            self._model = self._load(setup)
            self._setup = setup
            self._was_loaded = True
        return self._model

    def _load(self, setup: ComputeSetup) -> LlamaModel:
        began_ns = time.monotonic_ns()
        with large_pieces_apart(), closing(open_weights(self._path)) as source:
            self._tokenizer = source.tokenizer()
            self._tokenizer.check_fits(source.config.vocab, self._path)
            began_ns = self._end_stage("tokenizer", began_ns)
            model = build_model(source, setup.placement, setup.tier, setup.weight_dtype)
        began_ns = self._end_stage("weights", began_ns)
        warm(model)
        self._end_stage("pipelines", began_ns)
        return model

    def _end_stage(self, stage: Stage, began_ns: int) -> int:
        now_ns = time.monotonic_ns()
        if not self._was_loaded:
            self._stage_ended(stage, now_ns - began_ns)
        return now_ns


def warm(model: LlamaModel) -> None:
    """One prefill and one decode through both kinds of KV: allocator, threads and kernels are then set up."""
    tokens = min(_WARM_TOKENS, model.config.context_tokens - 1)
    prompt = [position % model.config.vocab for position in range(tokens)]
    contiguous = ContiguousKV(model.config, tokens + 1, model.placement)
    _pass_twice(model, contiguous, prompt, ())
    contiguous.free()
    paged = PagedKV(model.config, 1, tokens + 1, model.placement)
    _pass_twice(model, paged, prompt, (0,))
    paged.free()


def _pass_twice(model: LlamaModel, kv: KVStore, prompt: list[int], block_table: tuple[int, ...]) -> None:
    model.forward(ForwardBatch((Span(prompt, 0, 1, block_table),)), kv)
    model.forward(ForwardBatch((Span([0], len(prompt), 1, block_table),)), kv)
