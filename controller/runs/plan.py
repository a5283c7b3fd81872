"""From a request to arms and trials: engine options field by field, and the order in which trials run."""

from collections.abc import Sequence
from itertools import groupby

from pydantic import ValidationError

from contract.jobs import ArmSpec, EngineOptions, TrialSpec
from contract.rest import ArmRequest, RunRequest
from controller.errors import BadRequestError
from measures.statistics.order import Design, PlannedTrial, plan_trials


def resolve_arms(request: RunRequest) -> list[ArmSpec]:
    """The arms with the run's engine options under their own; BadRequestError names the wrong field."""
    names = [arm.arm for arm in request.arms]
    for position, name in enumerate(names):
        if name in names[:position]:
            raise BadRequestError(f"/arms/{position}/arm", f"two arms are called {name!r}; rename one")
    for side, name in (("baseline", request.baseline), ("candidate", request.candidate)):
        if name not in names:
            raise BadRequestError(f"/{side}", f"no arm is called {name!r}; the arms are: {', '.join(names)}")
    if request.baseline == request.candidate and len(names) > 1:
        raise BadRequestError(
            "/candidate", "baseline and candidate are the same arm; name the one that is to be judged"
        )
    return [_resolve_arm(request.engine, arm, position) for position, arm in enumerate(request.arms)]


def _resolve_arm(engine: EngineOptions, arm: ArmRequest, position: int) -> ArmSpec:
    try:
        options = EngineOptions.model_validate({**engine.model_dump(), **arm.engine})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = "/".join(str(part) for part in first["loc"])
        known = ", ".join(EngineOptions.model_fields)
        problem = f"it is unknown; known: {known}" if first["type"] == "extra_forbidden" else first["msg"]
        raise BadRequestError(
            f"/arms/{position}/engine/{field}", f"engine option {field}: {problem}"
        ) from error
    return ArmSpec(arm=arm.arm, mode=arm.mode, engine=options)


def plan_run(request: RunRequest) -> list[TrialSpec]:
    """Every trial in running order. Baseline and candidate of a pair are neighbours; further arms follow
    each pair in the order in which they are named."""
    design = Design(request.design)
    others = [arm.arm for arm in request.arms if arm.arm not in (request.baseline, request.candidate)]
    if request.baseline == request.candidate:
        return _numbered(_alone(request.baseline, request.warmups), _alone_pairs(request))
    planned = plan_trials(
        (request.baseline, request.candidate), request.repetitions, request.warmups, request.seed, design
    )
    warmups = [(trial.arm, None) for trial in planned if trial.warmup]
    warmups += [(arm, None) for _ in range(request.warmups) for arm in others]
    return _numbered(warmups, _with_others([trial for trial in planned if not trial.warmup], others))


def _alone(arm: str, warmups: int) -> list[tuple[str, int | None]]:
    return [(arm, None)] * warmups


def _alone_pairs(request: RunRequest) -> list[tuple[str, int | None]]:
    return [(request.baseline, pair) for pair in range(1, request.repetitions + 1)]


def _with_others(planned: Sequence[PlannedTrial], others: Sequence[str]) -> list[tuple[str, int | None]]:
    trials: list[tuple[str, int | None]] = []
    for pair, both in groupby(planned, key=lambda trial: trial.pair):
        trials += [(trial.arm, pair) for trial in both]
        trials += [(arm, pair) for arm in others]
    return trials


def _numbered(
    warmups: Sequence[tuple[str, int | None]], pairs: Sequence[tuple[str, int | None]]
) -> list[TrialSpec]:
    return [
        TrialSpec(trial=number, arm=arm, pair=pair, warmup=pair is None)
        for number, (arm, pair) in enumerate((*warmups, *pairs), start=1)
    ]
