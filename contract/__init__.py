"""Placeholder docstring replaced by the role."""
