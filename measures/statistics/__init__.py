"""Numbers in, numbers out; thresholds and seeds are arguments. No fact and no metric is known here."""
