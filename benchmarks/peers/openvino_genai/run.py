"""OpenVINO GenAI: its ContinuousBatchingPipeline, stepped with token ids.

naive: one call at a time, no prefix cache. serial_cache: one at a time, prefix cache. conc: all agents at
once; those that arrive together on a cold cache do not share. conc_prime: one request reads the shared prefix
first, inside the wall, which is its best. Its KV cache has the type that it chooses (u8 on a CPU): that is
its best too.
"""

from importlib.metadata import version
from typing import Any

import numpy as np
from peer_protocol import Conversation, Driver, Recorder, Work, answer, arguments, conversations, serially

MODES = ("naive", "serial_cache", "conc", "conc_prime")
_PRECISION = {"float32": "f32", "bfloat16": "bf16"}


def main() -> None:
    options = arguments(MODES)
    work = Work.read(options.work)
    import openvino_genai

    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size = 1
    scheduler.enable_prefix_caching = options.mode != "naive"
    scheduler.max_num_batched_tokens = 2048
    scheduler.max_num_seqs = len(work.agents)
    properties = {
        "INFERENCE_NUM_THREADS": options.threads,
        "INFERENCE_PRECISION_HINT": _PRECISION[options.dtype],
    }
    pipeline = openvino_genai.ContinuousBatchingPipeline(
        str(options.model / "openvino"), scheduler, "CPU", properties
    )
    driver = PipelineDriver(pipeline, Recorder())
    driver.warm()
    recorder = driver.recorder
    recorder.begin()
    if options.mode == "conc_prime":
        driver.prime(work.shared)
    if options.mode.startswith("conc"):
        driver.together(conversations(work))
    else:
        serially(work, recorder, driver.alone)
    recorder.end()
    about = {"peer": "openvino-genai", "version": version("openvino-genai")}
    answer(options, work, recorder, about)


class PipelineDriver(Driver):
    """Steps a ContinuousBatchingPipeline."""

    def together(self, agents: list[Conversation]) -> None:
        """As Driver's."""
        running = [self._submit(agent) for agent in agents]
        while running:
            self.engine.step()
            for entry in list(running):
                agent, handle, made = entry
                fresh = _read(handle)
                made += fresh
                self.recorder.made(agent.agent, agent.number, fresh)
                if len(made) == agent.calls[agent.number].output_tokens:
                    running.remove(entry)
                    agent.finish(made)
                    if not agent.is_done:
                        running.append(self._submit(agent))

    def alone(self, agent: str, call: int, prompt: list[int], output_tokens: int) -> list[int]:
        """As Driver's."""
        handle = self._add(prompt, output_tokens)
        made: list[int] = []
        while len(made) < output_tokens:
            self.engine.step()
            fresh = _read(handle)
            made += fresh
            self.recorder.made(agent, call, fresh)
        return made

    def _submit(self, agent: Conversation) -> tuple[Conversation, Any, list[int]]:
        prompt = agent.prompt()
        self.recorder.asked(len(prompt))
        return agent, self._add(prompt, agent.calls[agent.number].output_tokens), []

    def _add(self, prompt: list[int], output_tokens: int) -> Any:
        import openvino
        import openvino_genai

        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = output_tokens
        config.ignore_eos = True
        config.do_sample = False
        ids = openvino.Tensor(np.array([prompt], dtype=np.int64))
        return self.engine.add_request(self.next_id(), ids, config)


def _read(handle: Any) -> list[int]:
    if not handle.can_read():
        return []
    return [token for output in handle.read().values() for token in output.generated_ids]


if __name__ == "__main__":
    main()
