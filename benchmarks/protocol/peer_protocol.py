"""What every peer's script shares: the work it reads and the one JSON object that it answers with.

Standard library only: it runs in each peer's own environment. Definitions are those of contract/metrics.py:
wall from the moment the tasks are known to the last token, TTFT of an agent from that moment, ITL every gap
between tokens of a call; a run's ITL is the median over its calls.
"""

import argparse
import hashlib
import json
import os
import statistics
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

WARM_TOKENS = list(range(300, 364))
WARM_OUTPUT_TOKENS = 4
_NS_PER_MS = 1e6
_NS_PER_S = 1e9


@dataclass(frozen=True)
class CallPlan:
    """One generation: the tokens that follow the conversation so far, and how many it makes."""

    tokens: list[int]
    output_tokens: int


@dataclass(frozen=True)
class Work:
    """agents: name to calls; every first call begins with the same `shared` tokens."""

    name: str
    shared: list[int]
    agents: dict[str, list[CallPlan]]

    @classmethod
    def read(cls, path: Path) -> "Work":
        """From the file that benchmarks/work.py writes."""
        found = json.loads(path.read_text())
        agents = {
            agent["agent"]: [CallPlan(call["tokens"], call["output_tokens"]) for call in agent["calls"]]
            for agent in found["agents"]
        }
        return cls(found["name"], found["shared"], agents)

    @property
    def longest(self) -> int:
        """Tokens of the longest conversation at its end."""
        return max(
            sum(len(call.tokens) + call.output_tokens for call in calls) for calls in self.agents.values()
        )


@dataclass
class Recorder:
    """Times of one run. Load and start-up come before `begin`."""

    began_ns: int = 0
    ended_ns: int = 0
    token_ns: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    token_ids: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    prompt_tokens: int = 0
    cached_tokens: int | None = None
    """None: the peer does not say."""

    def begin(self) -> None:
        """The tasks are known."""
        self.began_ns = time.monotonic_ns()

    def end(self) -> None:
        """The last agent is done."""
        self.ended_ns = time.monotonic_ns()

    def asked(self, prompt_tokens: int) -> None:
        """A call with this prompt was handed in."""
        self.prompt_tokens += prompt_tokens

    def made(self, agent: str, call: int, ids: Iterable[int]) -> None:
        """Tokens that came now."""
        now_ns = time.monotonic_ns()
        for token_id in ids:
            self.token_ns.setdefault((agent, call), []).append(now_ns)
            self.token_ids.setdefault((agent, call), []).append(token_id)

    def cached(self, tokens: int) -> None:
        """So many prompt tokens of a call were not computed."""
        self.cached_tokens = (self.cached_tokens or 0) + tokens


@dataclass
class Conversation:
    """One agent's conversation so far."""

    agent: str
    calls: list[CallPlan]
    context: list[int] = field(default_factory=list)
    number: int = 0

    @property
    def is_done(self) -> bool:
        return self.number == len(self.calls)

    def prompt(self) -> list[int]:
        """The prompt of the next call."""
        return [*self.context, *self.calls[self.number].tokens]

    def finish(self, output: list[int]) -> None:
        """The next call wrote this."""
        self.context = [*self.prompt(), *output]
        self.number += 1


def conversations(work: Work) -> list[Conversation]:
    """One for each agent, nothing said yet."""
    return [Conversation(agent, calls) for agent, calls in work.agents.items()]


def arguments(modes: tuple[str, ...]) -> argparse.Namespace:
    """What benchmarks/run.py passes to every script."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True, help="folder with hf/ and model.gguf")
    parser.add_argument("--mode", choices=modes, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), required=True)
    parser.add_argument("--answer", type=Path, required=True, help="file for the JSON object")
    return parser.parse_args()


def answer(options: argparse.Namespace, work: Work, recorder: Recorder, about: dict[str, Any]) -> None:
    """Writes the run's JSON object. ValueError when a call did not make exactly its tokens."""
    for agent, calls in work.agents.items():
        for number, call in enumerate(calls):
            made = len(recorder.token_ids.get((agent, number), []))
            if made != call.output_tokens:
                raise ValueError(f"{agent}, call {number}: {made} tokens instead of {call.output_tokens}")
    first = {agent: (recorder.token_ns[agent, 0][0] - recorder.began_ns) / _NS_PER_S for agent in work.agents}
    gaps = [[b - a for a, b in pairwise(times)] for times in recorder.token_ns.values() if len(times) > 1]
    ids = [[list(key), made] for key, made in sorted(recorder.token_ids.items())]
    result = {
        "work": work.name,
        "mode": options.mode,
        "dtype": options.dtype,
        "threads": options.threads,
        "wall_s": (recorder.ended_ns - recorder.began_ns) / _NS_PER_S,
        "ttft_s": first,
        "itl_p50_ms": statistics.median(statistics.median(each) for each in gaps) / _NS_PER_MS,
        "itl_p95_ms": statistics.median(percentile_95(each) for each in gaps) / _NS_PER_MS,
        "prompt_tokens": recorder.prompt_tokens,
        "cached_tokens": recorder.cached_tokens,
        "output_tokens": sum(map(len, recorder.token_ids.values())),
        "peak_rss_mb": peak_rss_mb(),
        "began_mono_ns": recorder.began_ns,
        "ended_mono_ns": recorder.ended_ns,
        "output_sha256": hashlib.sha256(repr(ids).encode()).hexdigest(),
        **about,
    }
    unfinished = options.answer.with_suffix(".new")
    unfinished.write_text(json.dumps(result))
    unfinished.replace(options.answer)


def percentile_95(values: list[int]) -> float:
    """Linear between the two nearest."""
    ordered = sorted(values)
    rank = 0.95 * (len(ordered) - 1)
    below = int(rank)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (rank - below) * (ordered[above] - ordered[below])


def peak_rss_mb() -> float:
    """VmHWM of this process and of every process below it that still runs, added up, in 10^6 bytes."""
    children: dict[int, list[int]] = {}
    peaks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = dict(
                    line.split(":", 1) for line in (entry / "status").read_text().splitlines() if ":" in line
                )
            except OSError:
                continue
            children.setdefault(int(status["PPid"]), []).append(int(entry.name))
            peaks[int(entry.name)] = int(status.get("VmHWM", "0 kB").split()[0]) * 1024
    total, pending = 0, [os.getpid()]
    while pending:
        pid = pending.pop()
        total += peaks.get(pid, 0)
        pending += children.get(pid, [])
    return total / 1e6


def say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def serially(
    work: Work, recorder: Recorder, generate: Callable[[str, int, list[int], int], list[int]]
) -> None:
    """One agent after the other. generate(agent, call, prompt, output_tokens) records its tokens itself."""
    for conversation in conversations(work):
        while not conversation.is_done:
            prompt = conversation.prompt()
            recorder.asked(len(prompt))
            wanted = conversation.calls[conversation.number].output_tokens
            conversation.finish(generate(conversation.agent, conversation.number, prompt, wanted))


class Greedy(ABC):
    """Greedy generation with a cache that holds the first `held` tokens of what is asked next."""

    def __init__(self, recorder: Recorder, cache: Any) -> None:
        self.recorder = recorder
        self.cache = cache
        self.held = 0

    @abstractmethod
    def read(self, tokens: list[int]) -> int:
        """Adds `tokens`, which come behind what is held, to the cache; the token that follows them."""

    def call(self, agent: str, call: int, prompt: list[int], output_tokens: int) -> list[int]:
        """The output; the last token of it is not held."""
        fresh = prompt[self.held :]
        made: list[int] = []
        while len(made) < output_tokens:
            made.append(self.read(fresh))
            self.held += len(fresh)
            self.recorder.made(agent, call, made[-1:])
            fresh = made[-1:]
        return made


def warm(model: Greedy) -> None:
    """A short call of other tokens, through a model that is not used after it: its recorder is nobody's."""
    model.call("warm", 0, WARM_TOKENS, WARM_OUTPUT_TOKENS)


def serially_shared(work: Work, model: Greedy) -> None:
    """The shared prefix once; then every agent from a copy of it, which it keeps from call to call."""
    model.read(work.shared)
    prefix, recorder = model.cache, model.recorder

    def generate(agent: str, call: int, prompt: list[int], output_tokens: int) -> list[int]:
        if call == 0:
            model.cache, model.held = deepcopy(prefix), len(work.shared)
        recorder.cached(model.held)
        return model.call(agent, call, prompt, output_tokens)

    serially(work, recorder, generate)


class Driver(ABC):
    """Hands calls to an engine that batches, and steps it."""

    def __init__(self, engine: Any, recorder: Recorder) -> None:
        self.engine = engine
        self.recorder = recorder
        self._last_id = 0

    @abstractmethod
    def alone(self, agent: str, call: int, prompt: list[int], output_tokens: int) -> list[int]:
        """One call; its output."""

    @abstractmethod
    def together(self, agents: list[Conversation]) -> None:
        """Every agent's next call as soon as its last one is done."""

    def next_id(self) -> int:
        """Counts from 1."""
        self._last_id += 1
        return self._last_id

    def warm(self) -> None:
        """A short call of other tokens, so that kernels and caches of the allocator are there."""
        self._unrecorded("warm", WARM_TOKENS, WARM_OUTPUT_TOKENS)

    def prime(self, shared: list[int]) -> None:
        """Reads the shared prefix and writes one token."""
        self._unrecorded("prime", shared, 1)

    def _unrecorded(self, agent: str, prompt: list[int], output_tokens: int) -> None:
        recorder, self.recorder = self.recorder, Recorder()
        self.alone(agent, 0, prompt, output_tokens)
        self.recorder = recorder
