"""The process that a farm starts: an attempt with its trials, its arms and the events that it writes."""
