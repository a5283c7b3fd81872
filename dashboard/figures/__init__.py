"""Figures: contract types in, a plotly figure out. Pure: no clock, no network, no settings."""
