"""What the controller itself costs: a real process on loopback under load of many device agents."""
