"""Devices, their history, and the agents that have them."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Row, Text, cast, or_, select, update
from sqlalchemy.orm import Session

from contract.queries import DevicesQuery, HistoryQuery
from contract.states import DeviceState
from controller.db.models import AgentRow, DeviceRow, DeviceTransitionRow
from controller.errors import DeviceAgentNotFoundError, DeviceNotFoundError

# Not the whole row: a device's calibrations and properties are many times as large.
_PLACEMENT: Final[tuple[Any, ...]] = (
    *(
        DeviceRow.device_id,
        DeviceRow.device_agent_id,
        DeviceRow.state,
        DeviceRow.kind,
        DeviceRow.device_model,
    ),
    *(DeviceRow.os_version, DeviceRow.labels, DeviceRow.models, DeviceRow.reasons),
    *(DeviceRow.hold_until, DeviceRow.ready_at),
)


class DeviceRepository:
    """Devices by id, by agent and by deadline."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def find(self, device_id: str) -> DeviceRow | None:
        """The device, kept from other writers until the transaction ends; None if it was never seen."""
        return self._session.get(DeviceRow, device_id, with_for_update=True, populate_existing=True)

    def get(self, device_id: str) -> DeviceRow:
        """DeviceNotFoundError if it was never seen."""
        row = self._session.get(DeviceRow, device_id)
        if row is None:
            raise DeviceNotFoundError(device_id)
        return row

    def get_locked(self, device_id: str) -> DeviceRow:
        """As `find`, but DeviceNotFoundError if it was never seen."""
        row = self.find(device_id)
        if row is None:
            raise DeviceNotFoundError(device_id)
        return row

    def page(self, query: DevicesQuery) -> list[DeviceRow]:
        """At most one more than asked for, by id, retired ones too."""
        found = select(DeviceRow).order_by(DeviceRow.device_id).limit(query.limit + 1)
        exact: tuple[tuple[Any, object], ...] = (
            (DeviceRow.state, query.state),
            (DeviceRow.kind, query.kind),
            (DeviceRow.device_model, query.device_model),
            (DeviceRow.device_agent_id, query.device_agent_id),
        )
        found = found.where(*(column == value for column, value in exact if value is not None))
        if query.text:
            searched = (DeviceRow.device_id, DeviceRow.device_model, DeviceRow.os_name, DeviceRow.os_version)
            columns = (*searched, cast(DeviceRow.labels, Text))
            found = found.where(or_(*(column.icontains(query.text, autoescape=True) for column in columns)))
        if query.page_token is not None:
            found = found.where(DeviceRow.device_id > query.page_token)
        return list(self._session.scalars(found))

    def for_placement(self, device_ids: Collection[str] | None = None) -> Sequence[Row[Any]]:
        """What placement asks of every device that may still get work, or of these alone, by id."""
        statement = select(*_PLACEMENT).where(DeviceRow.state != DeviceState.RETIRED)
        if device_ids is not None:
            statement = statement.where(DeviceRow.device_id.in_(device_ids))
        return self._session.execute(statement.order_by(DeviceRow.device_id)).all()

    def locked(self, device_ids: Sequence[str]) -> list[DeviceRow]:
        """Those of these devices that were ever seen, by id, locked."""
        return list(
            self._session.scalars(
                select(DeviceRow)
                .where(DeviceRow.device_id.in_(device_ids))
                .order_by(DeviceRow.device_id)
                .with_for_update()
                .execution_options(populate_existing=True)
            )
        )

    def lock_free(self, device_ids: Sequence[str], device_agent_id: str) -> list[DeviceRow]:
        """The agent's own devices among these, locked; those that another writer has are left out."""
        return list(
            self._session.scalars(
                select(DeviceRow)
                .where(DeviceRow.device_id.in_(device_ids), DeviceRow.device_agent_id == device_agent_id)
                .order_by(DeviceRow.device_id)
                .with_for_update(skip_locked=True)
                .execution_options(populate_existing=True)
            )
        )

    def of_agent(self, device_agent_id: str) -> list[DeviceRow]:
        """The agent's devices by id, locked."""
        return list(
            self._session.scalars(
                select(DeviceRow)
                .where(DeviceRow.device_agent_id == device_agent_id)
                .order_by(DeviceRow.device_id)
                .with_for_update()
                .execution_options(populate_existing=True)
            )
        )

    def ids_of_agent(self, device_agent_id: str) -> frozenset[str]:
        """Ids of the agent's devices, without a lock."""
        return frozenset(
            self._session.scalars(
                select(DeviceRow.device_id).where(DeviceRow.device_agent_id == device_agent_id)
            )
        )

    def overdue(self, now: datetime) -> list[DeviceRow]:
        """Devices whose state has lasted longer than it may, locked."""
        return list(
            self._session.scalars(
                select(DeviceRow)
                .where(DeviceRow.state_deadline.is_not(None), DeviceRow.state_deadline <= now)
                .order_by(DeviceRow.device_id)
                .with_for_update(skip_locked=True)
                .execution_options(populate_existing=True)
            )
        )

    def transitions(self, device_id: str, query: HistoryQuery) -> list[DeviceTransitionRow]:
        """The newest changes of state first; one more than asked for says that there is a next page."""
        found = select(DeviceTransitionRow).where(DeviceTransitionRow.device_id == device_id)
        if query.page_token is not None:
            found = found.where(DeviceTransitionRow.transition_id < int(query.page_token))
        newest = DeviceTransitionRow.transition_id.desc()
        return list(self._session.scalars(found.order_by(newest).limit(query.limit + 1)))


class AgentRepository:
    """Device agents by id and by silence."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def find(self, device_agent_id: str) -> AgentRow | None:
        return self._session.get(AgentRow, device_agent_id)

    def get(self, device_agent_id: str) -> AgentRow:
        """DeviceAgentNotFoundError if it never enrolled."""
        row = self.find(device_agent_id)
        if row is None:
            raise DeviceAgentNotFoundError(device_agent_id)
        return row

    def named(self, name: str) -> AgentRow | None:
        """The agent that enrolled under this name, or None."""
        return self._session.scalars(select(AgentRow).where(AgentRow.name == name)).one_or_none()

    def all(self) -> list[AgentRow]:
        """Every agent that ever enrolled, by id."""
        return list(self._session.scalars(select(AgentRow).order_by(AgentRow.device_agent_id)))

    def touch(self, device_agent_ids: Collection[str], now: datetime) -> None:
        """These agents were heard of now."""
        self._session.execute(
            update(AgentRow)
            .where(AgentRow.device_agent_id.in_(device_agent_ids), AgentRow.last_seen_at < now)
            .values(last_seen_at=now)
            .execution_options(synchronize_session=False)
        )

    def draining(self) -> frozenset[str]:
        """Ids of the agents that get no new work."""
        return frozenset(self._session.scalars(select(AgentRow.device_agent_id).where(AgentRow.drain)))

    def silent_since(self, moment: datetime) -> list[AgentRow]:
        """Agents of which nothing was heard since."""
        return list(
            self._session.scalars(
                select(AgentRow).where(AgentRow.last_seen_at <= moment).order_by(AgentRow.device_agent_id)
            )
        )
