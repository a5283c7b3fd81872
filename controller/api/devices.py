"""Devices over HTTP: the fleet, and what a person decides about one of them."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from contract import routes
from contract.administration import DeviceAction, DeviceHistory, DeviceReservation, DeviceTransition
from contract.ids import DeviceId
from contract.queries import DevicesQuery, HistoryQuery
from contract.rest import DevicePage, DeviceView
from controller.api.auth import Principal, requires
from controller.api.context import ApiContext
from controller.api.routing import serves
from controller.api.runs import Context, Viewer
from controller.db.devices import DeviceRepository
from controller.db.models import DeviceTransitionRow, TokenScope
from controller.protocol.operators import (
    maintain_device,
    quarantine_device,
    release_device,
    reserve_device,
    retire_device,
)
from controller.runs.views import device_views

router = APIRouter(tags=["devices"])

Admin = Annotated[Principal, Depends(requires(TokenScope.ADMIN))]


@serves(router, routes.LIST_DEVICES)
def list_devices(query: Annotated[DevicesQuery, Query()], context: Context, _: Viewer) -> DevicePage:
    """Devices by id, page by page."""
    with context.view() as work:
        rows = DeviceRepository(work.session).page(query)
        views = device_views(work.session, rows[: query.limit])
    more = len(rows) > query.limit
    return DevicePage(devices=views, next_page_token=views[-1].device_id if more else None)


@serves(router, routes.GET_HISTORY)
def get_history(
    device_id: DeviceId, query: Annotated[HistoryQuery, Query()], context: Context, _: Viewer
) -> DeviceHistory:
    """Every change of its state, newest first: when, by what cause, for what reason, by whom."""
    with context.view() as work:
        devices = DeviceRepository(work.session)
        devices.get(device_id)
        rows = devices.transitions(device_id, query)
    transitions = [_transition(row) for row in rows[: query.limit]]
    more = len(rows) > query.limit
    return DeviceHistory(
        device_id=device_id,
        transitions=transitions,
        next_page_token=str(transitions[-1].transition_id) if more else None,
    )


@serves(router, routes.GET_DEVICE)
def get_device(device_id: DeviceId, context: Context, _: Viewer) -> DeviceView:
    """One device."""
    return _view(context, device_id)


@serves(router, routes.QUARANTINE_DEVICE)
def quarantine(device_id: DeviceId, body: DeviceAction, context: Context, principal: Admin) -> DeviceView:
    """No more work for it until it is released; a running attempt ends first."""
    with context.unit_of_work() as work:
        quarantine_device(work, device_id, principal.name, body.reason)
    return _view(context, device_id)


@serves(router, routes.RELEASE_DEVICE)
def release(device_id: DeviceId, body: DeviceAction, context: Context, principal: Admin) -> DeviceView:
    """Back to work, by way of a check."""
    with context.unit_of_work() as work:
        release_device(work, device_id, principal.name, body.reason)
    return _view(context, device_id)


@serves(router, routes.MAINTAIN_DEVICE)
def maintain(device_id: DeviceId, body: DeviceAction, context: Context, principal: Admin) -> DeviceView:
    """Out of work while a person has it; a running attempt ends first."""
    with context.unit_of_work() as work:
        maintain_device(work, device_id, principal.name, body.reason)
    return _view(context, device_id)


@serves(router, routes.RESERVE_DEVICE)
def reserve(device_id: DeviceId, body: DeviceReservation, context: Context, principal: Admin) -> DeviceView:
    """Out of work for a while, for a person; it comes back by itself. Only a ready device can be reserved."""
    with context.unit_of_work() as work:
        reserve_device(work, device_id, principal.name, body)
    return _view(context, device_id)


@serves(router, routes.RETIRE_DEVICE)
def retire(device_id: DeviceId, body: DeviceAction, context: Context, principal: Admin) -> DeviceView:
    """Removed for good; its results stay. Not while an attempt has it."""
    with context.unit_of_work() as work:
        retire_device(work, device_id, principal.name, body.reason)
    return _view(context, device_id)


def _transition(row: DeviceTransitionRow) -> DeviceTransition:
    return DeviceTransition(
        transition_id=row.transition_id,
        at=row.at,
        from_state=row.from_state,
        to_state=row.to_state,
        cause=row.cause,
        detail=row.detail,
        actor=row.principal,
    )


def _view(context: ApiContext, device_id: str) -> DeviceView:
    with context.view() as work:
        return device_views(work.session, [DeviceRepository(work.session).get(device_id)])[0]
