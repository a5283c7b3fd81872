"""Agents and their devices."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, Boolean, ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from contract.states import DeviceState, TargetKind
from controller.db.models.columns import Row, RowNumber, UtcDateTime, WordText


class AgentRow(Row):
    """A device agent: the process next to the devices. Offline when `last_seen_at` is too long ago."""

    __tablename__ = "agents"

    device_agent_id: Mapped[str] = mapped_column("agent_id", String(32), primary_key=True)
    name: Mapped[str] = mapped_column(String(64), unique=True)
    agent_version: Mapped[str] = mapped_column(Text, default="")
    contract_version: Mapped[str] = mapped_column(String(16))
    drain: Mapped[bool] = mapped_column(Boolean, default=False)
    health: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    last_seen_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    last_hello_sent_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    """The agent's own clock: a hello that was overtaken by a newer one changes no device."""


class DeviceRow(Row):
    """A device and who has it. `fence` rises with every grant: a write with a lower one is refused."""

    __tablename__ = "devices"

    device_id: Mapped[str] = mapped_column(String(80), primary_key=True)
    device_agent_id: Mapped[str] = mapped_column("agent_id", ForeignKey("agents.agent_id"), index=True)
    kind: Mapped[TargetKind] = mapped_column(WordText(TargetKind))
    state: Mapped[DeviceState] = mapped_column(WordText(DeviceState), index=True)
    state_since: Mapped[datetime] = mapped_column(UtcDateTime)
    state_deadline: Mapped[datetime | None] = mapped_column(UtcDateTime, index=True)
    reasons: Mapped[list[str]] = mapped_column(JSON, default=list)
    fence: Mapped[int] = mapped_column(BigInteger, default=0)
    hold_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    """Nothing is granted before: the previous lease holder may still be using the device."""
    ready_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    """When its agent thinks that waiting for a condition will be over; None where nobody can say."""
    drain_to: Mapped[DeviceState | None] = mapped_column(WordText(DeviceState))
    """Where a person wants it once its attempt has ended."""
    generation: Mapped[int] = mapped_column(BigInteger)
    device_model: Mapped[str] = mapped_column(Text)
    os_name: Mapped[str] = mapped_column(Text)
    os_version: Mapped[str] = mapped_column(Text)
    os_build: Mapped[str] = mapped_column(Text, default="")
    memory_bytes: Mapped[int | None] = mapped_column(BigInteger)
    virtual: Mapped[bool] = mapped_column(Boolean, default=False)
    models: Mapped[list[str]] = mapped_column(JSON, default=list)
    labels: Mapped[dict[str, str]] = mapped_column(JSON, default=dict)
    properties: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    """What its agent says of it; `model_problems` holds those of its models folder."""
    calibrations: Mapped[list[dict[str, Any]]] = mapped_column(JSON, default=list, server_default="[]")
    """Each a Calibration, as its agent last reported them."""
    faults_in_a_row: Mapped[int] = mapped_column(default=0)
    """Attempts that ended by the device's fault since the last good one."""
    rechecks: Mapped[int] = mapped_column(default=0)
    """Automatic checks since it was quarantined."""
    first_seen_at: Mapped[datetime] = mapped_column(UtcDateTime)
    last_seen_at: Mapped[datetime] = mapped_column(UtcDateTime)


class DeviceTransitionRow(Row):
    """One change of a device's state, kept for good: why a device is where it is."""

    __tablename__ = "device_transitions"
    __table_args__ = (Index(None, "device_id", "transition_id"),)

    transition_id: Mapped[int] = mapped_column(RowNumber, primary_key=True, autoincrement=True)
    device_id: Mapped[str] = mapped_column(ForeignKey("devices.device_id"))
    from_state: Mapped[DeviceState] = mapped_column(WordText(DeviceState))
    cause: Mapped[str] = mapped_column(String(48))
    to_state: Mapped[DeviceState] = mapped_column(WordText(DeviceState))
    detail: Mapped[str] = mapped_column(Text, default="")
    principal: Mapped[str] = mapped_column(String(200), default="", server_default="")
    """The person who decided it; empty where the farm did."""
    at: Mapped[datetime] = mapped_column(UtcDateTime)
