"""A device agent in the simulated world: honest, forgetful, on a clock that runs a little wrong."""

from dataclasses import dataclass, field
from typing import Any

from contract.agent_api import EventsAnswer, Lease, RenewAnswer, ResultAnswer
from contract.events import Stream
from contract.failures import FailureReason
from controller.errors import EventsGapError, EventsMissingError, FarmError, LeaseGoneError
from tests.controller.farm import control_lines, fixed_id
from tests.controller.protocol.world import Device, World


@dataclass
class Work:
    """One attempt as it lies on the agent's disk: it survives a crash of the agent."""

    lease: Lease
    deadline_s: float
    """The agent stops touching the device then, by itself."""
    ends_s: float
    outcome: str
    spool: list[bytes]
    written: int = 1
    sent: int = 0
    running: bool = True
    self_fenced: bool = False
    cancelled: bool = False
    delivered: bool = False
    abandoned: bool = False


@dataclass
class SimAgent:
    """`sees` may be shared with other agents. `fences_itself` and `counts_from_sending` can be taken away."""

    world: World
    name: str
    device_agent_id: str
    sees: list[Device]
    drift: float
    fences_itself: bool = True
    alive: bool = True
    works: list[Work] = field(default_factory=list)
    claiming: bool = False
    life: int = 0

    def start(self) -> None:
        """Loops of a fresh process; those of an earlier life end by themselves."""
        self.life += 1
        self.alive = True
        self.claiming = False
        self._loop(self.life, self._hello, 20.0)
        self._loop(self.life, self._claim, 8.0)
        self._loop(self.life, self._tend, 9.0)

    def crash(self) -> None:
        """The process dies; runtimes and disk go on."""
        self.alive = False
        self.world.after(self.world.chance.uniform(5, 80), self.start)

    def _loop(self, life: int, act: Any, period_s: float) -> None:
        def tick() -> None:
            if self.alive and self.life == life:
                act()
                self.world.after(period_s * self.world.chance.uniform(0.8, 1.2), tick)

        tick()

    def _call(self, serve: Any, answered: Any, timed_out: Any = lambda: None) -> None:
        life = self.life

        def if_alive(answer: Any) -> None:
            if self.alive and self.life == life:
                answered(answer)

        self.world.call(self.name, serve, if_alive, timed_out)

    # --- hello and claim

    def _hello(self) -> None:
        held = tuple(work.lease for work in self.works if work.running)
        devices = [device.device_id for device in self.sees]
        sent_at = self.world.farm.now

        def serve() -> Any:
            return self.world.farm.hello(self.device_agent_id, *devices, leases=held, sent_at=sent_at)

        self._call(serve, self._obey)

    def _obey(self, answer: Any) -> None:
        if isinstance(answer, FarmError):
            return
        for work in self.works:
            if work.running and work.lease.lease_id in answer.abandon_leases:
                self._stop(work, self_fenced=True)

    def _claim(self) -> None:
        busy = {work.lease.device_id for work in self.works if work.running}
        free = [device.device_id for device in self.sees if device.device_id not in busy]
        if free and not self.claiming:
            self.claiming = True
            self._ask(free, fixed_id("clm", self.world.farm.number()), tries_left=4)

    def _ask(self, device_ids: list[str], claim_id: str, tries_left: int) -> None:
        """A claim that was not answered is asked again under its id."""
        sent_s, life = self.world.now_s, self.life

        def again() -> None:
            if self.life == life and tries_left and self.alive:
                self._ask(device_ids, claim_id, tries_left - 1)
            elif self.life == life:
                self.claiming = False

        def take(answer: Any) -> None:
            self.claiming = False
            if isinstance(answer, Lease):
                self._begin(answer, sent_s)

        def serve() -> Any:
            return self.world.farm.claim(self.device_agent_id, *device_ids, claim_id=claim_id)

        self._call(serve, take, again)

    # --- executions

    def _begin(self, lease: Lease, sent_s: float) -> None:
        if any(work.lease.attempt_id == lease.attempt_id for work in self.works):
            return
        chance = self.world.chance
        count = chance.randint(2, 12)
        outcome = chance.choices(("succeeded", "failed", "errored"), (8, 1, 1))[0]
        work = Work(
            lease=lease,
            deadline_s=self._deadline_s(lease, sent_s),
            ends_s=self.world.now_s + chance.choice((20, 20, 60, 250)) * chance.random() + 3,
            outcome=outcome,
            spool=control_lines(lease.attempt_id, count, mark=chance.randint(1, 10**9)),
        )
        if self.fences_itself and self.world.now_s >= work.deadline_s:
            return
        self.works.append(work)
        next(d for d in self.sees if d.device_id == lease.device_id).start(lease.attempt_id)
        self._watch(work)

    def _deadline_s(self, lease: Lease, sent_s: float) -> float:
        """ttl minus margin on the agent's own clock, counted from when the request was sent."""
        return sent_s + (lease.ttl_s - lease.margin_s) / (1 + self.drift)

    def _watch(self, work: Work) -> None:
        """The runtime: lives through the agent's death, ends with its work or at the deadline on disk."""
        if not work.running:
            return
        now_s = self.world.now_s
        if self.fences_itself and now_s >= work.deadline_s:
            self._stop(work, self_fenced=True)
        elif now_s >= work.ends_s:
            work.written = len(work.spool)
            self._stop(work)
        else:
            work.written = min(len(work.spool), work.written + 1)
            limit_s = work.deadline_s if self.fences_itself else work.ends_s
            self.world.at(min(now_s + 5, work.ends_s, limit_s), lambda: self._watch(work))

    def _stop(self, work: Work, *, self_fenced: bool = False) -> None:
        work.running = False
        work.self_fenced = self_fenced
        for device in self.sees:
            device.stop(work.lease.attempt_id)

    # --- renewals, events, results

    def _tend(self) -> None:
        for work in self.works:
            if work.running:
                self._renew(work)
            if not work.delivered:
                self._upload(work)
                if not work.running:
                    self._report(work)

    def _renew(self, work: Work) -> None:
        sent_s = self.world.now_s

        def serve() -> Any:
            return self.world.farm.renew(self.device_agent_id, work.lease)

        def take(answer: Any) -> None:
            if isinstance(answer, LeaseGoneError) and work.running:
                self._stop(work, self_fenced=True)
            elif isinstance(answer, RenewAnswer):
                work.deadline_s = max(work.deadline_s, self._deadline_s(work.lease, sent_s))
                if answer.directive == "cancel" and work.running:
                    work.cancelled = True
                    self._stop(work)

        self._call(serve, take)

    def _upload(self, work: Work) -> None:
        """Sends on before the last batch is acknowledged, and sometimes a little of what was sent before."""
        first = max(0, work.sent - self.world.chance.choice((0, 0, 1, 3)))
        lines = work.spool[first : work.written][: self.world.chance.randint(1, 8)]
        if not lines:
            return
        work.sent = first + len(lines)
        before = first

        def serve() -> Any:
            return self.world.farm.upload(self.device_agent_id, work.lease, lines, first_seq=first + 1)

        def take(answer: Any) -> None:
            if isinstance(answer, EventsGapError):
                work.sent = answer.next_seq - 1
            elif isinstance(answer, EventsAnswer):
                work.sent = max(work.sent, answer.next_seq - 1)

        def rewind() -> None:
            work.sent = min(work.sent, before)

        self._call(serve, take, rewind)

    def _report(self, work: Work) -> None:
        """Often sent before the events are acknowledged: the controller must say what it lacks."""
        if work.sent < work.written and self.world.chance.random() < 0.5:
            return
        outcome = "errored" if work.self_fenced else "cancelled" if work.cancelled else work.outcome
        reason = FailureReason.AGENT_RESTARTED if outcome == "errored" else None

        def serve() -> Any:
            return self.world.farm.finish(
                self.device_agent_id,
                work.lease,
                outcome,
                reason=reason,
                last_seq={Stream.CONTROL: work.written},
            )

        def take(answer: Any) -> None:
            if isinstance(answer, EventsMissingError):
                work.sent = answer.next_seq - 1
            elif isinstance(answer, ResultAnswer):
                work.delivered = True

        self._call(serve, take)
