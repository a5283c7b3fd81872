"""torch's own operators: the kernels that are always there."""
