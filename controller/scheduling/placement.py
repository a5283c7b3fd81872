"""Which job gets which device: pure, the same answer for every order of the same facts.

Order of jobs: priority plus age, then fewest candidates, then the oldest. Of several devices that fit
equally well one is drawn, so that none wears out first.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from random import Random

from contract.rest import DeviceSelector
from contract.states import DeviceState


@dataclass(frozen=True, slots=True)
class JobFacts:
    """A queued job. An empty `excluded` allows every device; not_before None means at once."""

    job_id: str
    selector: DeviceSelector
    model: str
    priority: int
    queued_at: datetime
    not_before: datetime | None = None
    excluded: frozenset[str] = frozenset()

    @property
    def demand(self) -> Hashable:
        """Equal for jobs that the same devices can run: many cells of a run share it."""
        wanted = self.selector
        labels = tuple(sorted(wanted.labels.items()))
        selector = (wanted.kind, wanted.device_id, wanted.device_model, wanted.os_version, labels)
        return (selector, self.model, self.excluded)


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """A device that is not retired."""

    device_id: str
    state: DeviceState
    kind: str
    device_model: str
    os_version: str
    labels: tuple[tuple[str, str], ...]
    models: frozenset[str]
    reasons: tuple[str, ...] = ()
    hold_until: datetime | None = None
    ready_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """A job and the device it shall run on."""

    job_id: str
    device_id: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """One device from the view of one waiting job: `misses` never pass, `waits` do."""

    device_id: str
    misses: tuple[str, ...]
    waits: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rules:
    """How jobs are ordered: one priority is gained for each `age_boost_s` of waiting. seed: for the draw."""

    age_boost_s: float
    seed: str


def misfits(selector: DeviceSelector, model: str, device: DeviceFacts) -> tuple[str, ...]:
    """What would have to differ for the device to fit, in words; empty when it fits."""
    labels = dict(device.labels)
    found = []
    for field, wanted, have in (
        ("kind", selector.kind.value, device.kind),
        ("device_id", selector.device_id, device.device_id),
        ("device_model", selector.device_model, device.device_model),
        ("os_version", selector.os_version, device.os_version),
        *((f"label {name}", wanted, labels.get(name)) for name, wanted in sorted(selector.labels.items())),
    ):
        if wanted is not None and wanted != have:
            found.append(f"{field} is {have!r}, not {wanted!r}" if have else f"{field} is not set")
    if model not in device.models:
        found.append(f"it has no model {model!r} (it has: {', '.join(sorted(device.models)) or 'none'})")
    return tuple(found)


def nearest_misses(
    selector: DeviceSelector, model: str, devices: Sequence[DeviceFacts], limit: int = 3
) -> tuple[str, ...]:
    """The devices that fit best although none fits, each with what is wrong; best first."""
    near = sorted(
        (len(found), device.device_id, found)
        for device in devices
        if (found := misfits(selector, model, device))
    )
    return tuple(f"{device_id}: {', '.join(found)}" for _, device_id, found in near[:limit])


def candidates(job: JobFacts, devices: Sequence[DeviceFacts]) -> frozenset[str]:
    """Devices on which the job could run some time, exclusions applied."""
    return frozenset(
        device.device_id
        for device in devices
        if device.device_id not in job.excluded and not misfits(job.selector, job.model, device)
    )


def choose(
    jobs: Sequence[JobFacts],
    devices: Sequence[DeviceFacts],
    offered: frozenset[str],
    now: datetime,
    rules: Rules,
) -> Placement | None:
    """The job to run next on one of the `offered` devices, and on which; None when nothing fits.

    `devices` is the whole farm: a job that only one device can run goes before one that has a choice.
    """
    return next(assign(jobs, devices, offered, now, rules), None)


def assign(
    jobs: Sequence[JobFacts],
    devices: Sequence[DeviceFacts],
    offered: frozenset[str],
    now: datetime,
    rules: Rules,
) -> Iterator[Placement]:
    """As `choose`, for all of the `offered` devices: each gets the next best job that is left."""
    free = {
        device.device_id for device in devices if device.device_id in offered and not waits_for(device, now)
    }
    fitting: dict[Hashable, frozenset[str]] = {}
    ranked = []
    for job in jobs:
        if job.not_before is not None and job.not_before > now:
            continue
        if job.demand not in fitting:
            fitting[job.demand] = candidates(job, devices)
        age_s = max(0.0, (now - job.queued_at).total_seconds())
        priority = job.priority + int(age_s // rules.age_boost_s)
        rank = (-priority, len(fitting[job.demand]), job.queued_at, job.job_id)
        ranked.append((rank, fitting[job.demand]))
    for rank, fit in sorted(ranked, key=lambda entry: entry[0]):
        if usable := fit & free:
            drawn = Random(f"{rules.seed}/{rank[-1]}").choice(sorted(usable))
            free.remove(drawn)
            yield Placement(job_id=rank[-1], device_id=drawn)


def waits_for(device: DeviceFacts, now: datetime) -> tuple[str, ...]:
    """Why nothing can be granted on the device at this moment; empty when it is free."""
    found = []
    if device.state is not DeviceState.READY:
        because = f" ({', '.join(device.reasons)})" if device.reasons else ""
        found.append(f"it is {device.state.value}{because}{_more_time(device, now)}")
    if device.hold_until is not None and device.hold_until > now:
        left_s = (device.hold_until - now).total_seconds()
        found.append(f"the previous lease holder may still be using it for up to {left_s:.0f} s")
    return tuple(found)


def _more_time(device: DeviceFacts, now: datetime) -> str:
    """How long it takes at least, where its agent knows."""
    if device.ready_at is None or device.ready_at <= now:
        return ""
    left_s = (device.ready_at - now).total_seconds()
    return f", {left_s:.0f} s more" if left_s < 120 else f", {left_s / 60:.0f} min more"


def explain(job: JobFacts, devices: Sequence[DeviceFacts], now: datetime) -> tuple[Explanation, ...]:
    """Every device of the farm with what keeps the job from it, by id; an empty one may take it now."""
    explained = []
    for device in sorted(devices, key=lambda device: device.device_id):
        misses = misfits(job.selector, job.model, device)
        waits = waits_for(device, now)
        if device.device_id in job.excluded:
            misses = (*misses, "an earlier attempt failed there")
        if job.not_before is not None and job.not_before > now:
            waits = (*waits, f"the next try is in {(job.not_before - now).total_seconds():.0f} s")
        explained.append(Explanation(device.device_id, misses, waits))
    return tuple(explained)


def waiting_reason(explanations: Sequence[Explanation]) -> str:
    """One line for a list of jobs: what the job waits for."""
    fitting = [entry for entry in explanations if not entry.misses]
    if not explanations:
        return "the farm has no devices yet"
    if not fitting:
        return f"no device matches ({len(explanations)} checked)"
    free = [entry for entry in fitting if not entry.waits]
    if free:
        return f"{free[0].device_id} is free; waiting for its device agent to claim the job"
    first = fitting[0]
    more = f" (and {len(fitting) - 1} more)" if len(fitting) > 1 else ""
    return f"{first.device_id}: {', '.join(first.waits)}{more}"
