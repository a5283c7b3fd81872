"""Measures the runtime on this machine: its arms, interleaved, beside the machine's own rates.

Trials are those of an attempt and are judged by the events they wrote; nothing of a farm is needed.
"""
