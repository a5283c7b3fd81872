"""Facts of an attempt, put together from its events. One reader; no metric here."""
