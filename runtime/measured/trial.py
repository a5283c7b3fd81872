"""Runs one trial: the task graph says what is due, the arm computes it, the recorder writes what happened."""

import time
from collections.abc import Callable

from contract.failures import FailureReason
from contract.workload import CompiledWorkload
from runtime.engine.generator import CallBroke, CallDone, CallKey, CallRequest, Fact, Generator
from runtime.errors import RuntimeFault
from runtime.measured.errors import CancelledError
from runtime.measured.graph import Decision, GraphProgress, StartCall, StartRound
from runtime.measured.prefill_leavings import PrefillLeavings
from runtime.measured.prompts import PromptBook
from runtime.measured.record import TrialRecorder
from runtime.measured.watchdog import Watchdog

ArmMaker = Callable[[GraphProgress], Generator]
"""What computes one trial; the serial ones ask the graph whose turn it is."""

IDLE_S = 0.001
"""Pause when an arm has work and could compute none of it: nothing may spin."""


class Trial:
    """One execution of `workload`, whose stop tokens are `stop_tokens`."""

    def __init__(
        self,
        workload: CompiledWorkload,
        prompts: PromptBook,
        stop_tokens: frozenset[int],
        recorder: TrialRecorder,
        watchdog: Watchdog,
    ) -> None:
        self._workload = workload
        self._prompts = prompts
        self._stop_tokens = stop_tokens
        self._recorder = recorder
        self._watchdog = watchdog
        self._outputs: dict[CallKey, tuple[int, ...]] = {}

    def run(self, make_arm: ArmMaker) -> FailureReason | None:
        """Why the first agent failed, None when all completed. The trial's end is recorded whatever happens.

        CancelledError and LeaseExpiredError as the watchdog raises them.
        """
        progress = GraphProgress(self._workload, time.monotonic_ns())
        arm = make_arm(progress)
        self._recorder.started()
        progress.started_ns = time.monotonic_ns()
        try:
            self._advance_to_end(progress, arm)
        except CancelledError as stop:
            for fact in arm.cancel():
                self._recorder.happened(fact)
            for decision in progress.cancel():
                self._recorder.decided(decision)
            self._recorder.finished("cancelled", stop.reason)
            raise
        except RuntimeFault as fault:
            self._recorder.finished("failed", fault.reason)
            raise
        finally:
            arm.close()
        self._recorder.finished("failed" if progress.failure else "completed", progress.failure)
        return progress.failure

    def _advance_to_end(self, progress: GraphProgress, arm: Generator) -> None:
        leavings = PrefillLeavings()
        while True:
            self._watchdog.check()
            while decisions := progress.decide(time.monotonic_ns()):
                for decision in decisions:
                    self._carry_out(decision, progress, arm)
            if progress.is_done:
                return
            if arm.has_work:
                facts = arm.step()
                for fact in facts:
                    self._take(fact, progress)
                self._recorder.kv(arm.kv_state())
                leavings.look(facts)
                if not facts:
                    self._watchdog.wait(IDLE_S)
            else:
                self._wait_for_tool(progress)

    def _wait_for_tool(self, progress: GraphProgress) -> None:
        deadline_ns = progress.next_deadline_ns()
        if deadline_ns is None:
            raise AssertionError("agents wait, and neither a call nor a tool is running")
        self._watchdog.wait(max(0, deadline_ns - time.monotonic_ns()) / 1e9)

    def _carry_out(self, decision: Decision, progress: GraphProgress, arm: Generator) -> None:
        if isinstance(decision, StartRound):
            self._outputs.clear()
        elif isinstance(decision, StartCall):
            self._start(decision, progress, arm)
        else:
            self._recorder.decided(decision)

    def _start(self, start: StartCall, progress: GraphProgress, arm: Generator) -> None:
        call = start.call
        request = CallRequest(
            key=start.key,
            prompt=self._prompts.assemble(start.parts, self._outputs),
            max_output_tokens=call.max_output_tokens,
            stop_tokens=frozenset() if call.ignore_end else self._stop_tokens,
            sampling=call.sampling,
            priority=start.plan.priority,
        )
        self._recorder.arrived(start.key, len(request.prompt))
        try:
            arm.check(request)
        except RuntimeFault as fault:
            self._take(CallBroke(start.key, time.monotonic_ns(), fault), progress)
            return
        arm.submit(request)

    def _take(self, fact: Fact, progress: GraphProgress) -> None:
        self._recorder.happened(fact)
        if isinstance(fact, CallDone):
            self._outputs[fact.key] = fact.output
            progress.call_finished(fact.key)
        elif isinstance(fact, CallBroke):
            progress.call_failed(fact.key, fact.error.reason)
