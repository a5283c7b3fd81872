"""Decides which tokens the model computes next; the engine computes them and reports back."""
