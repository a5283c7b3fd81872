"""From events to verdicts: facts, metrics, statistics, verdict, each resting on those before it.

Pure: no clock, no settings, no store. Facts and metrics need no numeric library.
"""
