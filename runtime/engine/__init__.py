"""Generates: calls are submitted, each step computes a batch of them and says what happened.

It knows neither trials nor arms: runtime/measured runs those on top of it.
"""
