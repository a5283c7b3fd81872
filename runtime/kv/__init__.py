"""Accounting of the KV cache: ids and counts, no tensors, no clock, no I/O.

The pool accounts, the cache matches, the table maps tokens to slots; the engine acts on tensors.
"""
