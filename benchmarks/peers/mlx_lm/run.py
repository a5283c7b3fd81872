"""mlx-lm: on Apple's GPU what people use there; on Linux its CPU backend works and is slow.

shared: one agent after the other, each from a copy of the cache of the shared prefix, computed once inside
the wall.
"""

from importlib.metadata import version
from typing import Any

import mlx.core as mx
from peer_protocol import Greedy, Recorder, Work, answer, arguments, serially_shared, warm

MODES = ("shared",)
_CHUNK_TOKENS = 512


def main() -> None:
    options = arguments(MODES)
    work = Work.read(options.work)
    from mlx_lm.utils import load_model

    model, _ = load_model(options.model / "hf")
    model.set_dtype(getattr(mx, options.dtype))
    warm(Generator(model, Recorder()))
    recorder = Recorder()
    generator = Generator(model, recorder)
    recorder.begin()
    serially_shared(work, generator)
    recorder.end()
    about = {"peer": "mlx-lm", "version": version("mlx-lm"), "backend": str(mx.default_device())}
    answer(options, work, recorder, about)


class Generator(Greedy):
    """The model with mlx-lm's own prompt cache."""

    def __init__(self, model: Any, recorder: Recorder) -> None:
        from mlx_lm.models.cache import make_prompt_cache

        super().__init__(recorder, make_prompt_cache(model))
        self._model = model

    def read(self, tokens: list[int]) -> int:
        """As Greedy's; in chunks, or the scores of a long prompt would not fit."""
        logits = None
        for start in range(0, len(tokens), _CHUNK_TOKENS):
            chunk = mx.array([tokens[start : start + _CHUNK_TOKENS]])
            logits = self._model(chunk, cache=self.cache)[0, -1]
            mx.eval(logits, [layer.state for layer in self.cache])
        return int(mx.argmax(logits).item())


if __name__ == "__main__":
    main()
