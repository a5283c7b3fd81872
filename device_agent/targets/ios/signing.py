"""The provisioning profile inside an IPA: until when, and on which devices, iOS lets the app start."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from contract.ids import DeviceId
from device_agent.floor.property_list import PropertyListError, parse_property_list

# The profile is a signed message; the list inside is stored plainly between these.
_BEGIN: Final = b"<?xml"
_END: Final = b"</plist>"


class ProfileUnreadableError(ValueError):
    """The embedded profile holds no property list."""


@dataclass(frozen=True, slots=True)
class SigningProfile:
    """devices None: every device (an enterprise's profile)."""

    name: str
    expires_at: datetime
    devices: frozenset[DeviceId] | None

    def problem(self, device_id: DeviceId, now: datetime) -> str:
        """Why iOS would not start the app there, "" for nothing."""
        if now >= self.expires_at:
            return f"the profile {self.name!r} expired on {self.expires_at:%Y-%m-%d}; sign the build anew"
        if self.devices is not None and device_id not in self.devices:
            return f"the profile {self.name!r} lacks this device; add its UDID and sign the build anew"
        return ""


def parse_profile(content: bytes) -> SigningProfile:
    """From the bytes of embedded.mobileprovision; the signature itself is iOS's to judge."""
    begin, end = content.find(_BEGIN), content.rfind(_END)
    if begin < 0 or end < begin:
        raise ProfileUnreadableError("no property list in the profile")
    try:
        found = parse_property_list(content[begin : end + len(_END)])
    except PropertyListError as error:
        raise ProfileUnreadableError(f"in the profile: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("ExpirationDate"), datetime):
        raise ProfileUnreadableError("the profile does not say when it expires")
    return SigningProfile(
        name=str(found.get("Name", "unnamed")),
        # A property list's dates are in UTC and carry no zone.
        expires_at=found["ExpirationDate"].replace(tzinfo=UTC),
        devices=_devices(found),
    )


def _devices(profile: dict[str, Any]) -> frozenset[DeviceId] | None:
    if profile.get("ProvisionsAllDevices") is True:
        return None
    listed = profile.get("ProvisionedDevices")
    return frozenset(str(udid) for udid in listed) if isinstance(listed, list) else frozenset()
