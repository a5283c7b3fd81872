"""The worker: one process per iPhone, the one place that imports pymobiledevice3; it speaks JSON lines."""
