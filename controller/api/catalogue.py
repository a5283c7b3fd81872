"""What can be asked for: workloads and metrics."""

from fastapi import APIRouter

from contract import routes
from contract.metrics import METRICS
from contract.rest import MetricList, WorkloadList
from controller.api.routing import serves
from controller.api.runs import Viewer
from workloads import catalogue

router = APIRouter(tags=["catalogue"])


@serves(router, routes.LIST_WORKLOADS)
def list_workloads(_: Viewer) -> WorkloadList:
    """Workloads that can be named in a run."""
    return WorkloadList(workloads=catalogue())


@serves(router, routes.LIST_METRICS)
def list_metrics(_: Viewer) -> MetricList:
    """The metric catalogue: names, units, definitions."""
    return MetricList(metrics=list(METRICS.values()))
