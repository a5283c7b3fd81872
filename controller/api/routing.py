"""Registers functions for routes of the contract: method, path and status stand there only."""

from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import APIRouter

from contract.routes import Route

Handler = TypeVar("Handler", bound=Callable[..., Any])


def serves(router: APIRouter, route: Route[Any], **options: Any) -> Callable[[Handler], Handler]:
    """Decorates the function that answers `route`; options as for `APIRouter.api_route`."""
    return router.api_route(route.template, methods=[route.method], status_code=int(route.status), **options)
