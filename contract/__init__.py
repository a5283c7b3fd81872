"""All that crosses a process or a language: events, specs, REST bodies, metrics. Imports nothing of ours."""
