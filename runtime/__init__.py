"""The runtime: paged KV accounting, scheduling, the model and the engine that joins them."""
