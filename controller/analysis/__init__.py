"""Statistics of a farm's measurements. Pure: numbers in, numbers out; thresholds and seeds are arguments."""
