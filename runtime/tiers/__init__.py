"""Kernels under the decoder: aten, native and cuda, siblings that know nothing of each other.

Each answers runtime/model/tier.py; runtime/tiers/choice.py chooses one for a machine.
"""
