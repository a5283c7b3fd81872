"""A world around the real protocol: virtual time, lossy links, devices that notice two holders.

The controller is the product's own code on a real database. Agents and links are written here; what they
do wrong is drawn from a seed, so a failing seed fails again.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any

from controller.errors import FarmError
from tests.controller.farm import START, Farm

CALL_TIMEOUT_S = 10.0


class BrokenInvariantError(AssertionError):
    """The protocol allowed what it must not."""


@dataclass(frozen=True)
class Weather:
    """How bad it is until `calm_after_s`; from then on every message arrives, so that all jobs can end."""

    loss: float = 0.15
    duplicate: float = 0.1
    late: float = 0.1
    late_s: float = 40.0
    partition_s: float = 120.0
    crash_every_s: float = 400.0
    clock_error: float = 0.01
    calm_after_s: float = 420.0


@dataclass
class Device:
    """A device that knows who touches it: never two at once (I2)."""

    device_id: str
    holders: set[str] = field(default_factory=set)

    def start(self, attempt_id: str) -> None:
        """An execution begins to touch it."""
        if self.holders - {attempt_id}:
            raise BrokenInvariantError(f"I2: {attempt_id} and {self.holders} run on {self.device_id}")
        self.holders.add(attempt_id)

    def stop(self, attempt_id: str) -> None:
        """It lets go."""
        self.holders.discard(attempt_id)


class World:
    """Virtual time and the network between agents and the one controller."""

    def __init__(self, seed: int, weather: Weather, farm: Farm) -> None:
        """Nothing happens until something is scheduled."""
        self.chance = Random(seed)
        self.weather = weather
        self.farm = farm
        self.farm.chance = Random(seed)
        self.now_s = 0.0
        self.errors_seen: set[str] = set()
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._made = 0
        self._cut_until_s: dict[str, float] = {}

    def at(self, when_s: float, happen: Callable[[], None]) -> None:
        """Let something happen at a time; in the order of scheduling when times are equal."""
        self._made += 1
        heapq.heappush(self._queue, (max(when_s, self.now_s), self._made, happen))

    def after(self, delay_s: float, happen: Callable[[], None]) -> None:
        """Let something happen later."""
        self.at(self.now_s + delay_s, happen)

    def run(self, until_s: float, is_over: Callable[[], bool]) -> None:
        """Let time pass until it is over; the rest of the queue is thrown away."""
        while self._queue and self.now_s < until_s and not is_over():
            self.now_s, _, happen = heapq.heappop(self._queue)
            self.farm.now = START + timedelta(seconds=self.now_s)
            happen()

    @property
    def is_calm(self) -> bool:
        """Nothing goes wrong any more."""
        return self.now_s >= self.weather.calm_after_s

    def cut(self, agent_name: str) -> None:
        """Partition an agent from the controller for a while."""
        self._cut_until_s[agent_name] = self.now_s + self.chance.uniform(5, self.weather.partition_s)

    def call(
        self,
        agent_name: str,
        serve: Callable[[], Any],
        answered: Callable[[Any], None],
        timed_out: Callable[[], None],
    ) -> None:
        """One HTTP call. `answered` gets the answer or the FarmError; exactly one of the two is called."""
        exchange = _Exchange(answered, timed_out)
        self.after(CALL_TIMEOUT_S, exchange.time_out)
        if self._is_lost(agent_name):
            return
        self.after(self._delay_s(), lambda: self._arrive(agent_name, serve, exchange))
        if not self.is_calm and self.chance.random() < self.weather.duplicate:
            self.after(self.chance.uniform(0, self.weather.late_s), lambda: self._serve(serve))

    def _arrive(self, agent_name: str, serve: Callable[[], Any], exchange: "_Exchange") -> None:
        answer = self._serve(serve)
        if not self._is_lost(agent_name):
            self.after(self._delay_s(), lambda: exchange.answer(answer))

    def _serve(self, serve: Callable[[], Any]) -> Any:
        try:
            return serve()
        except FarmError as error:
            self.errors_seen.add(error.kind)
            return error

    def _is_lost(self, agent_name: str) -> bool:
        if self.is_calm:
            return False
        is_cut = self._cut_until_s.get(agent_name, 0.0) > self.now_s
        return is_cut or self.chance.random() < self.weather.loss

    def _delay_s(self) -> float:
        if not self.is_calm and self.chance.random() < self.weather.late:
            return self.chance.uniform(0, self.weather.late_s)
        return self.chance.uniform(0.01, 0.3)


class _Exchange:
    def __init__(self, answered: Callable[[Any], None], timed_out: Callable[[], None]) -> None:
        self._answered = answered
        self._timed_out = timed_out
        self._over = False

    def answer(self, answer: Any) -> None:
        if not self._over:
            self._over = True
            self._answered(answer)

    def time_out(self) -> None:
        if not self._over:
            self._over = True
            self._timed_out()
