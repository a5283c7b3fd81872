"""Which members of a device's answers identify it, its owner or its place, and how text looks that does.

The names of members are those of usbmuxd, lockdownd and the pair record; a name counts in any case.
"""

import re
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class SecretKind(StrEnum):
    """Only for people who read a transcript's summary; every kind is removed alike."""

    DEVICE = "device"
    HARDWARE = "hardware"
    RADIO = "radio"
    NETWORK = "network"
    NAME = "name"
    HOST = "host"
    KEY = "key"
    ACCOUNT = "account"
    PLACE = "place"


def _keys(kind: SecretKind, *names: str) -> dict[str, SecretKind]:
    return {name.lower(): kind for name in names}


SECRET_KEYS: Final = MappingProxyType(
    {
        **_keys(SecretKind.DEVICE, "UniqueDeviceID", "UDID", "SerialNumber", "DieID", "UniqueChipID"),
        **_keys(SecretKind.DEVICE, "ECID", "ApECID", "DeviceIdentifier", "PairRecordID"),
        **_keys(SecretKind.HARDWARE, "MLBSerialNumber", "BasebandSerialNumber", "BasebandMasterKeyHash"),
        **_keys(SecretKind.HARDWARE, "BasebandCertId", "BasebandChipID", "WirelessBoardSerialNumber"),
        **_keys(SecretKind.RADIO, "InternationalMobileEquipmentIdentity", "IMEI", "IMEI2", "MEID"),
        **_keys(SecretKind.RADIO, "InternationalMobileEquipmentIdentity2", "MobileEquipmentIdentifier"),
        **_keys(SecretKind.RADIO, "IntegratedCircuitCardIdentity", "ICCID", "EID"),
        **_keys(SecretKind.RADIO, "InternationalMobileSubscriberIdentity", "IMSI", "PhoneNumber"),
        **_keys(SecretKind.NETWORK, "WiFiAddress", "BluetoothAddress", "EthernetAddress", "WiFiMACAddress"),
        **_keys(SecretKind.NETWORK, "MACAddress", "NetworkAddress", "IPAddress", "SSID", "SSID_STR"),
        **_keys(SecretKind.NETWORK, "BSSID", "NetworkName", "EscapedFullServiceName"),
        **_keys(SecretKind.NAME, "DeviceName", "UserAssignedDeviceName", "UserAssignedName", "ComputerName"),
        **_keys(SecretKind.NAME, "HostName", "LocalHostName", "UserName", "FullName"),
        **_keys(SecretKind.HOST, "HostID", "SystemBUID", "BUID", "HostUUID", "HostIdentifier"),
        **_keys(SecretKind.ACCOUNT, "AppleID", "DSID", "DSPersonID", "AccountID", "EmailAddress", "Email"),
        **_keys(SecretKind.PLACE, "TimeZone", "Latitude", "Longitude", "Carrier", "CarrierBundleInfoArray"),
    }
)
KEY_WORDS: Final = (
    *("certificate", "privatekey", "publickey", "escrowbag", "pairrecorddata", "token", "secret"),
    *("password", "passcode", "cookie", "nonce", "signature", "ticket", "credential", "activation"),
    *("provisioningprofile", "fmip", "supervis"),
)
"""A member whose name has one of these in it holds a key or something as good."""
OPEN_KEYS: Final = frozenset({"passwordprotected", "activationstate", "developmentcertificate"})
"""Say a state in one word, no secret."""

GENERIC_NAMES: Final = frozenset({"iphone", "ipad", "ipod", "apple watch", "localhost", "unknown", "root"})
"""Names that name nobody: removing them everywhere would remove `iPhone17,1` too."""

_HEX = rb"[0-9A-Fa-f]"
PATTERNS: Final = tuple(
    re.compile(pattern)
    for pattern in (
        # UUID: a host, a pairing, a container, a report.
        rb"(?<![0-9A-Fa-f-])%s{8}-%s{4}-%s{4}-%s{4}-%s{12}(?![0-9A-Fa-f])" % ((_HEX,) * 5),
        # UDID of today, and of devices before 2018 (also a crash reporter key).
        rb"(?<![0-9A-Fa-f-])%s{8}-?%s{16}(?![0-9A-Fa-f-])" % ((_HEX,) * 2),
        rb"(?<![0-9A-Fa-f])%s{40}(?![0-9A-Fa-f])" % _HEX,
        rb"(?<![0-9A-Fa-f:])(?:%s{2}:){5}%s{2}(?![0-9A-Fa-f:])" % ((_HEX,) * 2),
        rb"(?<![0-9A-Fa-f:.])(?:%s{1,4}:){7}%s{1,4}(?![0-9A-Fa-f:])" % ((_HEX,) * 2),
        rb"(?<![0-9A-Fa-f:.])(?:[fF][eEcCdD]%s{2}|2%s{3})(?::{1,2}%s{1,4}){1,7}(?![0-9A-Fa-f:])"
        % ((_HEX,) * 3),
        rb"(?<![\d.])(?!127\.|0\.0\.0\.0|255\.)(?:\d{1,3}\.){3}\d{1,3}(?![\d.])",
        rb"[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64}){1,4}",
        # IMEI, or ICCID of a SIM card.
        rb"(?<!\d)\d{15}(?!\d)",
        rb"(?<!\d)89\d{17,18}(?!\d)",
    )
)
"""Text that identifies wherever it stands; bytes, since it may stand between binary ones."""
WORD: Final = re.compile(rb"[0-9A-Za-z:.@+_-]{6,}")
"""What the patterns can match in: a quick way past everything else."""
PEM: Final = re.compile(rb"-----BEGIN [A-Z ]{1,40}-----.{1,20000}?-----END [A-Z ]{1,40}-----", re.DOTALL)


def kind_of_key(key: str) -> SecretKind | None:
    """What a member of that name holds; None when it may be shown."""
    name = key.lower()
    if name in OPEN_KEYS:
        return None
    if name in SECRET_KEYS:
        return SECRET_KEYS[name]
    if any(word in name for word in KEY_WORDS):
        return SecretKind.KEY
    return SecretKind.HARDWARE if "serialno" in name or "serialnumber" in name else None
