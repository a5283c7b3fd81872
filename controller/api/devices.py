"""Devices over HTTP: the fleet, and what a person decides about one of them."""

from typing import Annotated

from fastapi import APIRouter, Depends

from contract import routes
from contract.administration import DeviceAction
from contract.ids import DeviceId
from contract.rest import DevicePage, DeviceView
from controller.api.auth import Principal, requires
from controller.api.context import ApiContext
from controller.api.routing import serves
from controller.api.runs import Context, Viewer
from controller.db.devices import DeviceRepository
from controller.db.models import TokenScope
from controller.protocol.operators import maintain_device, quarantine_device, release_device
from controller.runs.views import device_views

router = APIRouter(tags=["devices"])

Admin = Annotated[Principal, Depends(requires(TokenScope.ADMIN))]


@serves(router, routes.LIST_DEVICES)
def list_devices(context: Context, _: Viewer) -> DevicePage:
    """Every device, by id."""
    with context.view() as work:
        return DevicePage(devices=device_views(work.session, DeviceRepository(work.session).all()))


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


def _view(context: ApiContext, device_id: str) -> DeviceView:
    with context.view() as work:
        return device_views(work.session, [DeviceRepository(work.session).get(device_id)])[0]
