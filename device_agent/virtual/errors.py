"""Errors of the emulator, one failure each."""

from typing import ClassVar


class VirtualError(Exception):
    """Root: `code` is stable and kebab-case; the text is for a person."""

    code: ClassVar[str] = "virtual-error"


class UnknownDeviceError(VirtualError):
    """No emulated device has this UDID."""

    code = "unknown-device"


class UnknownFaultError(VirtualError):
    """There is no fault of this name, or it takes no such option."""

    code = "unknown-fault"


class BadRequestError(VirtualError):
    """A line on the control socket that is not a request."""

    code = "bad-request"


class NotPossibleNowError(VirtualError):
    """The device is not in a state in which this can happen: no app runs, or it is detached."""

    code = "not-possible-now"


class BadCatalogueError(VirtualError):
    """A model or version of the system that the emulator does not know."""

    code = "unknown-model"


class StateFolderError(VirtualError):
    """The folder of the devices cannot be used: locked, damaged, or its path too long for a socket."""

    code = "state-folder"


class PackageError(VirtualError):
    """A package that the device refuses to install; `name` as installation_proxy says it."""

    code = "package-refused"

    def __init__(self, name: str, detail: str) -> None:
        """`detail` is what installation_proxy sends as ErrorDescription."""
        super().__init__(f"{name}: {detail}")
        self.name = name
        self.detail = detail


class LaunchRefusedError(VirtualError):
    """The device does not start the app: it is locked, or the app is unknown or not trusted."""

    code = "launch-refused"

    def __init__(self, domain: str, number: int, detail: str) -> None:
        """`domain` and `number` as in the NSError that a client sees."""
        super().__init__(detail)
        self.domain = domain
        self.number = number
