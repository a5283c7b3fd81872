"""This machine as a target: the runtime is a process on it, started, found again, and its end read."""
