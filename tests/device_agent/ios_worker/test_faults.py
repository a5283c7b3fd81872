"""Whatever the library raises becomes one of our kinds."""

import asyncio
import inspect
import ssl

import pytest
from pymobiledevice3 import exceptions as ios
from pymobiledevice3.dtx import DTXNsError
from pymobiledevice3.dtx.ns_types import NSError
from pymobiledevice3.dtx.service import QueueShutDown
from pymobiledevice3.services.afc import AfcError

from device_agent.ios_worker.faults import WorkerError, detail_of, kind_of
from device_agent.ios_worker.files import inside
from device_agent.ios_worker.protocol import WorkerErrorKind as K


def ns_error(text: str) -> DTXNsError:
    return DTXNsError(NSError(1, "SomeDomain", {"NSLocalizedDescription": text}))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ios.PairingDialogResponsePendingError(), K.UNTRUSTED),
        (ios.UserDeniedPairingError(), K.DENIED),
        (ios.PasswordRequiredError(), K.LOCKED),
        (ios.NotPairedError(), K.UNTRUSTED),
        (ios.InvalidHostIDError(), K.UNTRUSTED),
        (ios.DeveloperModeIsNotEnabledError(), K.DEVELOPER_MODE_OFF),
        (ios.ConnectionFailedToUsbmuxdError(), K.DISCONNECTED),
        (ios.ConnectionTerminatedError(), K.DISCONNECTED),
        (ios.NoDeviceConnectedError(), K.DISCONNECTED),
        (ios.AppInstallError("ApplicationVerificationFailed: 0xe8008015"), K.PROVISIONING),
        (ios.AppInstallError("InsufficientStorage: no room"), K.NO_SPACE),
        (ios.AppInstallError("DeviceOSVersionTooLow: x"), K.INSTALL_REFUSED),
        (ios.AppNotInstalledError("x"), K.APP_MISSING),
        (ios.AfcException("full", AfcError.NO_SPACE_LEFT), K.NO_SPACE),
        (ios.AfcException("gone", AfcError.OBJECT_NOT_FOUND), K.FILE_MISSING),
        (ios.AfcFileNotFoundError("gone", AfcError.READ_ERROR), K.FILE_MISSING),
        (QueueShutDown("x"), K.DISCONNECTED),
        (ssl.SSLError("x"), K.DISCONNECTED),
        (ConnectionResetError(), K.DISCONNECTED),
        (asyncio.IncompleteReadError(b"", 4), K.DISCONNECTED),
        (TimeoutError(), K.STALLED),
        (ns_error("Unable to launch x because the device was not unlocked."), K.LOCKED),
        (ns_error("its profile has not been explicitly trusted by the user"), K.PROVISIONING),
        (ns_error("Request to launch x failed."), K.LAUNCH_REFUSED),
        (WorkerError(K.DIGEST_WRONG, "x"), K.DIGEST_WRONG),
        (AssertionError(), K.BROKEN),
        (IndexError(), K.BROKEN),
        (RuntimeError("attached to a different loop"), K.BROKEN),
        (OSError(28, "this host's disk is full"), K.PROTOCOL),
        (ios.ProtocolError("odd"), K.PROTOCOL),
    ],
)
def test_an_exception_has_one_kind(error: BaseException, kind: K) -> None:
    assert kind_of(error) is kind


def test_every_exception_class_of_the_library_has_a_kind() -> None:
    classes = [c for _, c in inspect.getmembers(ios, inspect.isclass) if issubclass(c, BaseException)]
    assert len(classes) > 80
    for each in classes:
        made = each.__new__(each)
        Exception.__init__(made, "x" * 10_000)
        # As the class's own constructor leaves it for an answer without a status.
        made.status = None
        assert kind_of(made) in K


def test_a_detail_is_bounded() -> None:
    assert len(detail_of(ios.ProtocolError("x" * 10_000))) <= 500


def test_the_library_s_plea_to_be_reported_is_not_passed_on() -> None:
    assert "github" not in detail_of(ios.PyMobileDevice3Exception("odd")).lower()


@pytest.mark.parametrize("path", ["../Library/x", "/etc/passwd", "a/../../b", "", "."])
def test_no_path_leaves_the_app_s_documents(path: str) -> None:
    with pytest.raises(WorkerError):
        inside(path)


def test_a_path_inside_is_absolute() -> None:
    assert inside("attempts/a/spec.json") == "/Documents/attempts/a/spec.json"
