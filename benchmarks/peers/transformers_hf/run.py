"""transformers in eager mode, its own forward pass and DynamicCache: what a script without a server does.

naive: every call computes its whole prompt. shared: one agent after the other, and each begins with a copy of
the cache of the shared prefix, computed once inside the wall, and keeps its own from call to call.
"""

import copy
from importlib.metadata import version
from typing import Any

import torch
from peer_protocol import Recorder, Work, answer, arguments, conversations

MODES = ("naive", "shared")
_CHUNK_TOKENS = 2048


def main() -> None:
    """One run."""
    options = arguments(MODES)
    work = Work.read(options.work)
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(options.threads)
    model = AutoModelForCausalLM.from_pretrained(options.model / "hf", dtype=getattr(torch, options.dtype))
    model.eval()
    recorder = Recorder()
    with torch.inference_mode():
        Generator(model, Recorder()).call("warm", 0, list(range(300, 364)), 4)
        generator = Generator(model, recorder)
        recorder.begin()
        if options.mode == "naive":
            run_naive(generator, work)
        else:
            run_shared(generator, work)
        recorder.end()
    about = {"peer": "transformers", "version": version("transformers")}
    answer(options, work, recorder, about)


def run_naive(generator: "Generator", work: Work) -> None:
    """No token of KV outlives its call."""
    recorder = generator.recorder
    for conversation in conversations(work):
        while not conversation.is_done:
            prompt = conversation.prompt()
            recorder.asked(len(prompt))
            generator.forget()
            wanted = conversation.calls[conversation.number].output_tokens
            conversation.finish(generator.call(conversation.agent, conversation.number, prompt, wanted))


def run_shared(generator: "Generator", work: Work) -> None:
    """The prefix once, then every agent from a copy of it."""
    recorder = generator.recorder
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


class Generator:
    """Greedy generation with a cache that holds the first `held` tokens of what is asked next."""

    def __init__(self, model: Any, recorder: Recorder) -> None:
        self._model = model
        self.recorder = recorder
        self.cache: Any = None
        self.held = 0

    def forget(self) -> None:
        """The next prompt is computed from its first token."""
        self.cache, self.held = None, 0

    def prefill(self, tokens: list[int]) -> Any:
        """Logits of the last of `tokens`, which come behind what is held."""
        logits = None
        for start in range(0, len(tokens), _CHUNK_TOKENS):
            chunk = torch.tensor([tokens[start : start + _CHUNK_TOKENS]])
            out = self._model(chunk, past_key_values=self.cache, use_cache=True, logits_to_keep=1)
            self.cache, logits = out.past_key_values, out.logits
        self.held += len(tokens)
        return logits

    def call(self, agent: str, call: int, prompt: list[int], output_tokens: int) -> list[int]:
        """The output; the last token of it is not held."""
        logits = self.prefill(prompt[self.held :])
        made: list[int] = []
        while True:
            token = int(logits[0, -1].argmax())
            made.append(token)
            self.recorder.made(agent, call, [token])
            if len(made) == output_tokens:
                return made
            logits = self.prefill([token])


if __name__ == "__main__":
    main()
