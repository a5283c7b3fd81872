"""An attempt's events as a Perfetto trace: who computed what when, and where the memory went."""
