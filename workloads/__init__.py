"""Workload files: YAML in, task graphs out (contract.workload). Every error names file and line."""

from workloads.catalogue import catalogue, named_source
from workloads.compile import compile_request, compile_source
from workloads.errors import WorkloadError
from workloads.located import Source

__all__ = ["Source", "WorkloadError", "catalogue", "compile_request", "compile_source", "named_source"]
