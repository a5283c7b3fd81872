"""The developer disk image: looked for on the device, mounted from this host, never downloaded."""

from pathlib import Path
from typing import Any

from pymobiledevice3.exceptions import AlreadyMountedError, PyMobileDevice3Exception
from pymobiledevice3.lockdown import UsbmuxLockdownClient
from pymobiledevice3.services.mobile_image_mounter import (
    CRYPTEX_IMAGE_MIN_VERSION,
    DeveloperDiskImageMounter,
    PersonalizedImageMounter,
    image_type_for_device,
    uses_personalized_image,
)

from device_agent.floor.property_list import PropertyListError, parse_property_list
from device_agent.ios_worker.faults import WorkerError
from device_agent.ios_worker.protocol import WorkerErrorKind
from device_agent.ios_worker.session import version_of


class _OfflineMounter(PersonalizedImageMounter):
    """Takes only a ticket that the device already holds: the library would ask a server of Apple's."""

    async def get_manifest_from_tss(self, build_manifest: dict[str, Any]) -> bytes:
        raise WorkerError(
            WorkerErrorKind.IMAGE_MISSING,
            "the device holds no ticket for the image; mount it once with Xcode",
        )


async def mount_image(client: UsbmuxLockdownClient, images: Path) -> None:
    """Mounted already, or mounted now; WorkerError `image_missing` that says which file is wanted."""
    if await _is_mounted(client):
        return
    try:
        if not uses_personalized_image(client):
            await _mount_classic(client, images)
        elif version_of(client.product_version) >= CRYPTEX_IMAGE_MIN_VERSION:
            raise WorkerError(
                WorkerErrorKind.IMAGE_MISSING,
                "from iOS 27 on only Apple's server signs the image; mount it once with Xcode",
            )
        else:
            await _mount_personalized(client, images / "Xcode_iOS_DDI_Personalized")
    except AlreadyMountedError:
        return


async def _is_mounted(client: UsbmuxLockdownClient) -> bool:
    async with DeveloperDiskImageMounter(client) as mounter:
        return await mounter.is_image_mounted(image_type_for_device(client))


async def _mount_classic(client: UsbmuxLockdownClient, images: Path) -> None:
    version = version_of(client.product_version)
    image = images / f"{version.major}.{version.minor}" / "DeveloperDiskImage.dmg"
    signature = image.with_name(f"{image.name}.signature")
    _require(image, signature)
    async with DeveloperDiskImageMounter(client) as mounter:
        await mounter.mount(image, signature)


async def _mount_personalized(client: UsbmuxLockdownClient, folder: Path) -> None:
    image, trust_cache = folder / "Image.dmg", folder / "Image.trustcache"
    manifest = folder / "BuildManifest.plist"
    _require(image, trust_cache, manifest)
    try:
        parse_property_list(manifest.read_bytes())
    except PropertyListError as error:
        raise WorkerError(WorkerErrorKind.IMAGE_MISSING, f"{manifest} is not a property list") from error
    try:
        async with _OfflineMounter(client) as mounter:
            await mounter.mount(image, manifest, trust_cache)
    except PyMobileDevice3Exception as error:
        if type(error) is PyMobileDevice3Exception:
            raise WorkerError(WorkerErrorKind.IMAGE_MISSING, str(error)) from error
        raise


def _require(*paths: Path) -> None:
    missing = next((path for path in paths if not path.is_file()), None)
    if missing is not None:
        raise WorkerError(
            WorkerErrorKind.IMAGE_MISSING, f"no image is mounted and this host has no {missing} to mount"
        )
