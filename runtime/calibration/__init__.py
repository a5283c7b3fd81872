"""Measures the best engine options on this machine: `python -m runtime calibrate`."""
