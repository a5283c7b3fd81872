"""One attempt from its lease to its result."""
