"""mobile_image_mounter: the developer disk image. What is in it does not matter, only that it came."""

import hashlib
from typing import Any, Final

from device_agent.virtual.device.catalogue import SystemVersion
from device_agent.virtual.device.device import VirtualDevice
from device_agent.virtual.link.wire import Wire

_MAX_IMAGE_BYTES: Final = 512 << 20
_CHUNK_BYTES: Final = 1 << 20
_DEVELOPER_MODE_SINCE: Final = SystemVersion(16, 0)


class ImageMounter:
    """One connection's conversation; what is mounted is the device's."""

    def __init__(self, device: VirtualDevice) -> None:
        self._device = device
        self._received = ""

    async def serve(self, wire: Wire) -> None:
        """Commands until the client leaves."""
        while True:
            query = await wire.receive_plist()
            command = str(query.get("Command"))
            if command == "ReceiveBytes":
                await self._receive(wire, query)
                continue
            answer = self._answer(command, query)
            await wire.send_plist(answer)
            if answer.get("Error") == "MissingManifestError":
                # A client asks again on a fresh connection; the real service has closed this one.
                return

    async def _receive(self, wire: Wire, query: dict[str, Any]) -> None:
        left_bytes = int(query.get("ImageSize", 0))
        if not 0 < left_bytes <= _MAX_IMAGE_BYTES:
            await wire.send_plist({"Error": "InvalidImage"})
            return
        await wire.send_plist({"Status": "ReceiveBytesAck"})
        while left_bytes:
            left_bytes -= len(await wire.receive(min(left_bytes, _CHUNK_BYTES)))
        self._received = str(query.get("ImageType"))
        await wire.send_plist({"Status": "Complete"})

    def _answer(self, command: str, query: dict[str, Any]) -> dict[str, Any]:
        record = self._device.record
        kind = record.version.image_type
        match command:
            case "LookupImage":
                is_there = record.image_mounted and query.get("ImageType") == kind
                return {"Status": "Complete"} | ({"ImageSignature": [self._signature()]} if is_there else {})
            case "CopyDevices":
                entry = {"DiskImageType": kind, "IsMounted": True, "ImageSignature": self._signature()}
                return {"Status": "Complete", "EntryList": [entry] if record.image_mounted else []}
            case "QueryDeveloperModeStatus" if record.version >= _DEVELOPER_MODE_SINCE:
                return {"DeveloperModeStatus": record.developer_mode, "Status": "Complete"}
            case "QueryPersonalizationManifest":
                if record.has_image_manifest:
                    return {"ImageSignature": self._signature(), "Status": "Complete"}
                return {"Error": "MissingManifestError"}
            case "QueryNonce":
                nonce = hashlib.sha384(record.boot_id.encode()).digest()[:32]
                return {"PersonalizationNonce": nonce, "Status": "Complete"}
            case "QueryPersonalizationIdentifiers":
                ids = {"BoardId": record.model.board_id, "ChipID": record.model.chip_id, "SecurityDomain": 1}
                return {"PersonalizationIdentifiers": ids, "Status": "Complete"}
            case "MountImage":
                return self._mount(query)
            case "UnmountImage":
                return self._unmount()
            case _:
                return {"Error": "UnknownCommand"}

    def _mount(self, query: dict[str, Any]) -> dict[str, Any]:
        record = self._device.record
        if not record.developer_mode:
            return _failed("InternalError", "Developer mode is not enabled.")
        if record.is_locked:
            return _failed("DeviceLocked", "The device is locked.")
        if record.image_mounted:
            return _failed("InternalError", "A disk image of this type is already mounted.")
        if query.get("ImageType") != record.version.image_type or self._received != query.get("ImageType"):
            return _failed("InvalidImage", "No image of this type was received.")
        record.image_mounted = True
        record.has_image_manifest = True
        self._device.save()
        return {"Status": "Complete"}

    def _unmount(self) -> dict[str, Any]:
        if not self._device.record.image_mounted:
            return _failed("InternalError", "There is no matching entry in the device map.")
        self._device.record.image_mounted = False
        self._device.save()
        return {"Status": "Complete"}

    def _signature(self) -> bytes:
        return hashlib.sha384(self._device.udid.encode()).digest()


def _failed(error: str, detail: str) -> dict[str, Any]:
    return {"Error": error, "DetailedError": detail}
