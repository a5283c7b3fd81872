"""Runs: what is submitted becomes jobs, and what the jobs measured becomes a report and a gate."""
