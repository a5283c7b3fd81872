"""Facts to values: each metric of the catalogue by its one formula, spreads over trials, lines over time."""
