"""Peers of the runtime as code, and the one command that measures all of them (docs/benchmarks.md)."""
