"""Carries out one attempt: stages of start-up, conditions, budgets, then every trial in its order."""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from contract.events import ArmConditions, RuntimeStage
from contract.failures import FAILURES, FailureReason, Fault
from contract.jobs import ArmSpec, AttemptSpec, TrialSpec
from contract.workload import Segment
from runtime.engine.compute import ComputeSetup, decide_compute
from runtime.engine.contiguous import ContiguousEngine
from runtime.engine.generator import Generator
from runtime.engine.models import ModelHolder, Stage
from runtime.engine.paged import PagedEngine, PagedSetup
from runtime.host.machine import this_machine
from runtime.host.memory import give_back_memory, memory_limit_bytes, read_footprint
from runtime.measured.arm_plan import ArmPlan, MachineMemory, budget_event, plan_arm
from runtime.measured.conditions import calibration_key, conditions_event, model_digest
from runtime.measured.emit import PENDING_SEQ, EventEmitter
from runtime.measured.footprint import FootprintSampler
from runtime.measured.graph import GraphProgress
from runtime.measured.options import ArmSetup, decide_options
from runtime.measured.prompts import PromptBook
from runtime.measured.record import TrialRecorder
from runtime.measured.serial_turns import SerialTurns
from runtime.measured.sizes import WorkloadSizes, workload_sizes
from runtime.measured.trace import TraceObserver
from runtime.measured.trial import Trial
from runtime.measured.watchdog import Watchdog
from runtime.model.llama import LlamaModel
from runtime.model.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class FailedTrial:
    """The first trial in which an agent failed."""

    trial: int
    reason: FailureReason
    detail: str


@dataclass(frozen=True, slots=True)
class AttemptParts:
    """What a measurement of the runtime itself (runtime/bench) replaces; the attempt of a job never does."""

    prompts: Callable[[list[Segment], Tokenizer], PromptBook] = PromptBook
    recorder: type[TrialRecorder] = TrialRecorder


class Attempt:
    """One attempt of `spec` with the model at `model_path`; events go to `emitter`."""

    def __init__(
        self,
        spec: AttemptSpec,
        model_path: Path,
        emitter: EventEmitter,
        watchdog: Watchdog,
        parts: AttemptParts = AttemptParts(),
    ) -> None:
        self._spec = spec
        self._model_path = model_path
        self._emitter = emitter
        self._watchdog = watchdog
        self._parts = parts
        self._machine = this_machine()
        self._computes: dict[str, ComputeSetup] = {}
        self._setups: dict[str, ArmSetup] = {}
        self._limit_bytes = memory_limit_bytes()

    def run(self) -> FailedTrial | None:
        """None when every trial completed; the RuntimeFault that ended the attempt otherwise.

        A trial with a failed agent does not end the attempt, unless the job is at fault: it would fail again.
        """
        began_ns = time.monotonic_ns()
        sampler = FootprintSampler(self._emitter, self._limit_bytes)
        try:
            models = ModelHolder(self._model_path, self._stage_ended)
            digest = model_digest(self._model_path)
            self._computes = {arm.arm: decide_compute(arm.engine, self._machine) for arm in self._spec.arms}
            self._setups = {arm.arm: self._setup(arm, digest) for arm in self._spec.arms}
            model = self._model_for(models, self._spec.arms[0])
            prompts = self._parts.prompts(self._spec.workload.segments, models.tokenizer)
            sizes = workload_sizes(self._spec.workload, prompts, model.config.context_tokens)
            self._record_conditions(model, digest)
            plans = self._plan_arms(model, sizes)
            # What start-up left behind is never garbage: the collector need not look at it during trials.
            gc.collect()
            gc.freeze()
            self._stage_ended("ready", time.monotonic_ns() - began_ns)
            return self._run_trials(models, prompts, plans, sampler)
        finally:
            gc.unfreeze()
            sampler.close()

    def _run_trials(
        self, models: ModelHolder, prompts: PromptBook, plans: dict[str, ArmPlan], sampler: FootprintSampler
    ) -> FailedTrial | None:
        first_failure: FailedTrial | None = None
        for trial in self._spec.trials:
            self._watchdog.check()
            plan = plans[trial.arm]
            model = self._model_for(models, plan.setup.spec)
            give_back_memory()
            recorder = self._parts.recorder(self._emitter, trial, models.tokenizer.decode)
            sampler.attribute_to(trial.trial, plan.limit_bytes)
            execution = Trial(
                self._spec.workload, prompts, models.tokenizer.eos_ids, recorder, self._watchdog
            )
            try:
                reason = execution.run(partial(self._make_arm, model, plan, trial))
            finally:
                sampler.attribute_to(None, self._limit_bytes)
            if reason is not None and first_failure is None:
                first_failure = FailedTrial(trial.trial, reason, recorder.failure_text(reason))
            if reason is not None and FAILURES[reason].fault is Fault.JOB:
                break
        return first_failure

    def _make_arm(
        self, model: LlamaModel, plan: ArmPlan, trial: TrialSpec, progress: GraphProgress
    ) -> Generator:
        engine = plan.setup.engine
        if plan.setup.mode == "serial":
            arm: Generator = ContiguousEngine(model, plan.contiguous_tokens, plan.setup.prefill_chunk_tokens)
        else:
            setup = PagedSetup(
                pool_blocks=plan.budget.pool_blocks,
                block_tokens=engine.block_tokens,
                scheduler=plan.scheduler,
                contamination_check=engine.contamination_check,
            )
            arm = PagedEngine(model, setup, TraceObserver(self._emitter, trial.trial))
        if plan.setup.mode == "paged":
            return arm
        agents = sorted(self._spec.workload.agents, key=lambda agent: -agent.priority)
        return SerialTurns(arm, [agent.agent for agent in agents], progress.gives_way)

    def _plan_arms(self, model: LlamaModel, sizes: WorkloadSizes) -> dict[str, ArmPlan]:
        plans = {}
        for arm in self._spec.arms:
            compute = self._computes[arm.arm]
            kv_format = model.config.kv_format(compute.placement.value_bytes)
            memory = MachineMemory(
                limit_bytes=self._limit_bytes,
                physical_bytes=compute.device_memory_bytes
                or self._machine.memory_bytes
                or model.weights_bytes * 4,
                weights_bytes=model.weights_bytes,
                rest_bytes=max(0, read_footprint().footprint_bytes - model.weights_bytes),
            )
            plans[arm.arm] = plan_arm(self._setups[arm.arm], kv_format, memory, sizes)
            self._emitter.emit(budget_event(plans[arm.arm]))
        return plans

    def _record_conditions(self, model: LlamaModel, digest: str) -> None:
        arms = {
            arm.arm: ArmConditions(
                mode=arm.mode,
                **self._computes[arm.arm].as_conditions(),
                block_tokens=arm.engine.block_tokens,
                contamination_check=arm.engine.contamination_check,
                **self._setups[arm.arm].as_conditions(),
            )
            for arm in self._spec.arms
        }
        self._emitter.emit(conditions_event(self._spec, self._machine, model.config, digest, arms))

    def _model_for(self, models: ModelHolder, arm: ArmSpec) -> LlamaModel:
        return models.model(self._computes[arm.arm], self._setups[arm.arm].threads)

    def _setup(self, arm: ArmSpec, digest: str) -> ArmSetup:
        here = calibration_key(self._computes[arm.arm], self._machine, digest)
        return decide_options(arm, here, self._spec.calibrations.get(arm.arm))

    def _stage_ended(self, stage: Stage, duration_ns: int) -> None:
        self._emitter.emit(
            RuntimeStage(seq=PENDING_SEQ, t_mono_ns=time.monotonic_ns(), stage=stage, duration_ns=duration_ns)
        )
        self._watchdog.check()
