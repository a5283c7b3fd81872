"""Where an attempt stands when its runner begins: read from its folder and from the agent's own stream."""

from contract.events import PhaseChanged, Producer, StreamOpened
from contract.events.envelope import Stream
from contract.failures import FailureReason
from contract.version import CONTRACT_VERSION, installed_version
from device_agent.attempt.lease import Durations, Held, HeldPhase, claimed
from device_agent.collect.spool import Spool
from device_agent.floor.attempt_folder import AttemptFolder
from device_agent.floor.clock import monotonic_ns, seconds_ns, wall
from device_agent.floor.settings import AgentSettings


def open_spool(folder: AttemptFolder, settings: AgentSettings) -> Spool:
    """The attempt's spool, its agent stream opened."""
    spool = Spool(folder.spool_path, settings.spool_quota_bytes)
    if Stream.DEVICE_AGENT not in spool.last_seqs():
        spool.record(
            lambda seq: StreamOpened(
                seq=seq,
                t_mono_ns=monotonic_ns(),
                stream=Stream.DEVICE_AGENT,
                contract_version=CONTRACT_VERSION,
                attempt_id=folder.attempt_id,
                producer=Producer(name="device_agent", version=installed_version()),
                t_wall=wall(),
            )
        )
    return spool


def durations(folder: AttemptFolder, settings: AgentSettings) -> Durations:
    """Limits from the spec, graces from the settings."""
    limits = folder.spec().limits
    return Durations(
        prepare_ns=seconds_ns(limits.prepare_s),
        run_ns=seconds_ns(limits.run_s),
        upload_ns=seconds_ns(limits.upload_s),
        stall_ns=seconds_ns(limits.stall_s),
        cancel_grace_ns=seconds_ns(settings.cancel_grace_s),
        terminate_grace_ns=seconds_ns(settings.terminate_grace_s),
        fence_grace_ns=seconds_ns(settings.fence_grace_s),
    )


def resumed_lease(folder: AttemptFolder, spool: Spool, settings: AgentSettings) -> Held:
    """The lease as it was left; a folder without lease.json was granted and not accepted yet.

    The deadline in lease.json is in force until a renewal moves it. After a reboot the monotonic clock
    began again: a deadline further away than any renewal could have set it is void.
    """
    lease = folder.grant().lease
    now_ns = monotonic_ns()
    held = claimed(lease, durations(folder, settings), now_ns)
    file = folder.lease_file()
    if file is None:
        return held
    latest_ns = now_ns + seconds_ns(lease.ttl_s)
    phase, since_ns = _last_phase(spool, now_ns)
    cancelled = file.directive == "cancel"
    return Held(
        phase=phase,
        durations=held.durations,
        since_ns=since_ns,
        accept_until_ns=held.accept_until_ns,
        deadline_ns=file.deadline_mono_ns if file.deadline_mono_ns <= latest_ns else now_ns,
        renew_at_ns=now_ns,
        renew_interval_ns=held.renew_interval_ns,
        stop=FailureReason.CANCELLED if cancelled else None,
        stopped_ns=now_ns,
        told_cancel=cancelled,
    )


def _last_phase(spool: Spool, now_ns: int) -> tuple[HeldPhase, int]:
    changes = [e for e in spool.events(Stream.DEVICE_AGENT, "phase_changed") if isinstance(e, PhaseChanged)]
    if not changes:
        return HeldPhase.ACCEPTING, now_ns
    return HeldPhase(changes[-1].phase), min(changes[-1].t_mono_ns, now_ns)
