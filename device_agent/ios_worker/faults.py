"""Every exception of the library becomes one of our own kinds, here and nowhere else."""

import asyncio
import ssl
from typing import Final

from pymobiledevice3 import exceptions as ios
from pymobiledevice3.dtx import DTXNsError, DTXProtocolError
from pymobiledevice3.dtx.service import QueueShutDown
from pymobiledevice3.services.afc import AfcError

from device_agent.ios_worker.protocol import WorkerErrorKind

K = WorkerErrorKind
_DETAIL_CHARS: Final = 500


class WorkerError(Exception):
    """What the worker itself found wrong, already in our words."""

    def __init__(self, kind: WorkerErrorKind, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


# The first that fits counts: an exception's own class stands before its bases.
_KINDS: Final[tuple[tuple[tuple[type[BaseException], ...], WorkerErrorKind], ...]] = (
    ((ios.PasswordRequiredError, ios.PasscodeRequiredError), K.LOCKED),
    ((ios.UserDeniedPairingError,), K.DENIED),
    ((ios.PairingError, ios.NotPairedError, ios.NotTrustedError, ios.FatalPairingError), K.UNTRUSTED),
    ((ios.DeveloperModeIsNotEnabledError, ios.DeveloperModeError), K.DEVELOPER_MODE_OFF),
    ((ios.DeveloperDiskImageNotFoundError, ios.MissingManifestError, ios.TSSError), K.IMAGE_MISSING),
    ((ios.AppNotInstalledError,), K.APP_MISSING),
    ((ios.NotEnoughDiskSpaceError,), K.NO_SPACE),
    ((ios.AfcFileNotFoundError,), K.FILE_MISSING),
    ((ios.UserspaceTunnelUnavailableError, ios.RSDRequiredError), K.TUNNEL),
    ((ios.InvalidServiceError, ios.DeviceFeatureNotSupportedError), K.UNSUPPORTED),
    (
        (
            *(ios.DeviceNotFoundError, ios.NoDeviceConnectedError, ios.ConnectionTerminatedError),
            # A cable pulled while a channel waits arrives as the channel's queue being shut.
            *(ios.NotConnectedError, ios.ChannelClosedError, ios.MuxException, QueueShutDown),
            *(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError, EOFError),
        ),
        K.DISCONNECTED,
    ),
    ((TimeoutError,), K.STALLED),
)


def kind_of(error: BaseException) -> WorkerErrorKind:
    """The kind of anything that a call raised; `protocol` or `broken` for what nobody expected."""
    if isinstance(error, WorkerError):
        return error.kind
    if isinstance(error, ios.AppInstallError):
        return _kind_of_install(str(error))
    if isinstance(error, DTXNsError):
        return _kind_of_launch(error)
    if isinstance(error, ios.AfcException) and error.status == AfcError.NO_SPACE_LEFT:
        return K.NO_SPACE
    if isinstance(error, ios.AfcException) and error.status == AfcError.OBJECT_NOT_FOUND:
        return K.FILE_MISSING
    if isinstance(error, DTXProtocolError):
        return K.PROTOCOL
    known = next((kind for types, kind in _KINDS if isinstance(error, types)), None)
    if known is not None:
        return known
    # Python's own errors out of the library: its state is not to be trusted any more.
    return K.PROTOCOL if isinstance(error, ios.PyMobileDevice3Exception | OSError) else K.BROKEN


def detail_of(error: BaseException) -> str:
    """For a person: the class and what it said, without the library's plea to be reported."""
    said = str(error).partition("\nPlease report it")[0]
    return f"{type(error).__name__}: {said}"[:_DETAIL_CHARS] if said else type(error).__name__


def _kind_of_install(text: str) -> WorkerErrorKind:
    """installation_proxy answers in words only. Codes: 0xe8008015 profile, 0xe8008018 and 1c identity."""
    if "ApplicationVerificationFailed" in text or "0xe80080" in text or "provision" in text.lower():
        return K.PROVISIONING
    if "InsufficientStorage" in text or "NotEnough" in text or "space" in text.lower():
        return K.NO_SPACE
    if "PasswordProtected" in text or "locked" in text.lower():
        return K.LOCKED
    return K.INSTALL_REFUSED


def _kind_of_launch(error: DTXNsError) -> WorkerErrorKind:
    """The instruments daemon answers with an NSError whose text names the cause."""
    text = f"{error.error.domain} {error.error.user_info}".lower()
    if "unlocked" in text or "locked" in text:
        return K.LOCKED
    if "profile" in text or "trust" in text or "signature" in text:
        return K.PROVISIONING
    return K.LAUNCH_REFUSED
