"""mlx-lm: on Apple's GPU what people use there; on Linux its CPU backend works and is slow.

shared: one agent after the other, each from a copy of the cache of the shared prefix, computed once inside
the wall.
"""

import copy
from importlib.metadata import version
from typing import Any

import mlx.core as mx
from peer_protocol import Recorder, Work, answer, arguments, conversations

MODES = ("shared",)
_CHUNK_TOKENS = 512


def main() -> None:
    """One run."""
    options = arguments(MODES)
    work = Work.read(options.work)
    from mlx_lm.utils import load_model

    model, _ = load_model(options.model / "hf")
    model.set_dtype(getattr(mx, options.dtype))
    recorder = Recorder()
    Generator(model, Recorder()).call("warm", 0, list(range(300, 332)), 2)
    generator = Generator(model, recorder)
    recorder.begin()
    generator.prefill(work.shared)
    prefix = generator.cache
    for conversation in conversations(work):
        generator.cache, generator.held = copy.deepcopy(prefix), len(work.shared)
        while not conversation.is_done:
            prompt = conversation.prompt()
            recorder.asked(len(prompt))
            recorder.cached(generator.held)
            wanted = conversation.calls[conversation.number].output_tokens
            conversation.finish(generator.call(conversation.agent, conversation.number, prompt, wanted))
    recorder.end()
    about = {"peer": "mlx-lm", "version": version("mlx-lm"), "backend": str(mx.default_device())}
    answer(options, work, recorder, about)


class Generator:
    """Greedy generation with a cache that holds the first `held` tokens of what is asked next."""

    def __init__(self, model: Any, recorder: Recorder) -> None:
        from mlx_lm.models.cache import make_prompt_cache

        self._model = model
        self.recorder = recorder
        self.cache = make_prompt_cache(model)
        self.held = 0

    def prefill(self, tokens: list[int]) -> Any:
        """Logits of the last of `tokens`, which come behind what is held."""
        logits = None
        for start in range(0, len(tokens), _CHUNK_TOKENS):
            chunk = mx.array([tokens[start : start + _CHUNK_TOKENS]])
            logits = self._model(chunk, cache=self.cache)[0, -1]
            mx.eval(logits, [layer.state for layer in self.cache])
        self.held += len(tokens)
        return logits

    def call(self, agent: str, call: int, prompt: list[int], output_tokens: int) -> list[int]:
        """The output; the last token of it is not held."""
        logits = self.prefill(prompt[self.held :])
        made: list[int] = []
        while True:
            token = int(mx.argmax(logits).item())
            made.append(token)
            self.recorder.made(agent, call, [token])
            if len(made) == output_tokens:
                return made
            logits = self.prefill([token])


if __name__ == "__main__":
    main()
