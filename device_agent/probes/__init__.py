"""What the agent measures itself, on its own machine."""
