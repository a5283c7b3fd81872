"""transformers in eager mode, its own forward pass and DynamicCache: what a script without a server does.

naive: every call computes its whole prompt. shared: one agent after the other, and each begins with a copy of
the cache of the shared prefix, computed once inside the wall, and keeps its own from call to call.
"""

from importlib.metadata import version
from typing import Any

import torch
from peer_protocol import Greedy, Recorder, Work, answer, arguments, serially, serially_shared, warm

MODES = ("naive", "shared")
_CHUNK_TOKENS = 2048


def main() -> None:
    options = arguments(MODES)
    work = Work.read(options.work)
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(options.threads)
    model = AutoModelForCausalLM.from_pretrained(options.model / "hf", dtype=getattr(torch, options.dtype))
    model.eval()
    recorder = Recorder()
    with torch.inference_mode():
        warm(Generator(model, Recorder()))
        generator = Generator(model, recorder)
        recorder.begin()
        if options.mode == "naive":
            serially(work, recorder, generator.call_from_nothing)
        else:
            serially_shared(work, generator)
        recorder.end()
    about = {"peer": "transformers", "version": version("transformers")}
    answer(options, work, recorder, about)


class Generator(Greedy):
    """The model with the cache that its forward pass makes."""

    def __init__(self, model: Any, recorder: Recorder) -> None:
        super().__init__(recorder, None)
        self._model = model

    def call_from_nothing(self, agent: str, call: int, prompt: list[int], output_tokens: int) -> list[int]:
        """No token of KV outlives its call."""
        self.cache, self.held = None, 0
        return self.call(agent, call, prompt, output_tokens)

    def read(self, tokens: list[int]) -> int:
        """As Greedy's; in chunks, or the scores of a long prompt would not fit."""
        logits = None
        for start in range(0, len(tokens), _CHUNK_TOKENS):
            chunk = torch.tensor([tokens[start : start + _CHUNK_TOKENS]])
            out = self._model(chunk, past_key_values=self.cache, use_cache=True, logits_to_keep=1)
            self.cache, logits = out.past_key_values, out.logits
        return int(logits[0, -1].argmax())


if __name__ == "__main__":
    main()
