"""The lease protocol: calls of device agents, decisions of people, the sweep. The time is passed in."""
