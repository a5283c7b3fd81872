"""Why the native tier is not there; the caller then computes with torch's operators."""


class NativeTierError(Exception):
    """The native tier cannot be used here; the message says why in one line."""


class NoCompilerError(NativeTierError):
    """No C++ compiler was found."""


class CompilerFailedError(NativeTierError):
    """The compiler refused the sources or took too long."""


class LibraryRefusedError(NativeTierError):
    """What was built, or found in the cache, cannot be loaded on this machine."""
