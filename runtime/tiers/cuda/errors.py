"""Why the kernels written in CUDA C++ are not there; Triton's products then run."""


class ChainError(Exception):
    """The kernel of a layer's products cannot be used here; the message says why in one line."""


class ChainShapeError(ChainError):
    """Device, precision, model or batch do not fit the kernel."""


class NvrtcMissingError(ChainError):
    """NVIDIA's run-time compiler was not found."""


class KernelBuildError(ChainError):
    """The compiler refused the sources."""


class DriverCallError(ChainError):
    """A call into the CUDA driver failed."""
