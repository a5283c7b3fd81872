"""The CUDA tier: a decode step as one CUDA graph of Triton kernels, prefill attention over pages.

Triton is optional: only the modules named *_kernels import it, and `tier` asks first whether it is there.
"""
