"""Which job gets which device."""
