"""What emulated devices can be: models, versions of the system, and which services a version has."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from device_agent.virtual.errors import BadCatalogueError

GIB: Final = 1 << 30
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class DeviceModel:
    """limit_bytes: what the app in front may use without entitlements; assumed, Apple publishes none."""

    product_type: str
    marketing_name: str
    hardware_model: str
    chip_id: int
    board_id: int
    memory_bytes: int
    limit_bytes: int

    @property
    def device_class(self) -> str:
        """As lockdown says it."""
        return "iPad" if self.product_type.startswith("iPad") else "iPhone"


_MODELS: Final = (
    DeviceModel("iPhone12,1", "iPhone 11", "N104AP", 0x8030, 0x04, 4 * GIB, 2098 * _MIB),
    DeviceModel("iPhone13,2", "iPhone 12", "D53gAP", 0x8101, 0x0C, 4 * GIB, 2098 * _MIB),
    DeviceModel("iPhone14,2", "iPhone 13 Pro", "D63AP", 0x8110, 0x0C, 6 * GIB, 3072 * _MIB),
    DeviceModel("iPhone14,7", "iPhone 14", "D27AP", 0x8110, 0x18, 6 * GIB, 3072 * _MIB),
    DeviceModel("iPhone15,3", "iPhone 14 Pro Max", "D74AP", 0x8120, 0x0E, 6 * GIB, 3072 * _MIB),
    DeviceModel("iPhone16,1", "iPhone 15 Pro", "D83AP", 0x8130, 0x04, 8 * GIB, 3277 * _MIB),
    DeviceModel("iPhone17,1", "iPhone 16 Pro", "D93AP", 0x8140, 0x0C, 8 * GIB, 3277 * _MIB),
    DeviceModel("iPhone17,3", "iPhone 16", "D47AP", 0x8140, 0x08, 8 * GIB, 3277 * _MIB),
    DeviceModel("iPhone18,1", "iPhone 17 Pro", "V53AP", 0x8150, 0x0C, 12 * GIB, 3379 * _MIB),
    DeviceModel("iPad13,16", "iPad Air (5th generation)", "J407AP", 0x8103, 0x38, 8 * GIB, 5 * GIB),
    DeviceModel("iPad16,3", "iPad Pro 11-inch (M4)", "J717AP", 0x8132, 0x08, 8 * GIB, 5 * GIB),
)
MODELS: Final[Mapping[str, DeviceModel]] = MappingProxyType({each.product_type: each for each in _MODELS})


def model_of(product_type: str) -> DeviceModel:
    """BadCatalogueError, which names the known ones, for a model that is not in the table."""
    try:
        return MODELS[product_type]
    except KeyError:
        raise BadCatalogueError(f"no model {product_type!r}; known: {', '.join(MODELS)}") from None


_VERSION: Final = re.compile(r"(\d{2})\.(\d{1,2})(?:\.(\d{1,2}))?")
_SUPPORTED_MAJOR: Final = frozenset({16, 17, 18, 26, 27})


@dataclass(frozen=True, slots=True, order=True)
class SystemVersion:
    """A version of iOS or iPadOS, ordered."""

    major: int
    minor: int
    patch: int = 0

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}" + (f".{self.patch}" if self.patch else "")

    @property
    def build(self) -> str:
        """In the shape of Apple's build numbers; the number itself is made up."""
        train = self.major + 4 if self.major <= 18 else self.major - 3
        return f"{train}{chr(ord('A') + min(self.minor, 25))}{50 + self.patch}"

    @property
    def darwin(self) -> str:
        """Version of its kernel."""
        return f"{self.major + 6 if self.major <= 18 else self.major - 1}.{self.minor}.{self.patch}"

    @property
    def image_type(self) -> str:
        """Kind of its developer disk image. From 27 on Apple prefers a cryptex, which is not emulated."""
        return "Developer" if self < SystemVersion(17, 0) else "Personalized"

    @property
    def has_core_device_proxy(self) -> bool:
        """Whether a tunnel can be made over USB without root: from 17.4 on."""
        return self >= SystemVersion(17, 4)

    @property
    def has_lockdown_instruments(self) -> bool:
        """Whether developer tools are reached through lockdown: before 17."""
        return self < SystemVersion(17, 0)


def parse_version(text: str) -> SystemVersion:
    """BadCatalogueError for what is not a version, or one that is not emulated."""
    match = _VERSION.fullmatch(text.strip())
    if match is None:
        raise BadCatalogueError(f"{text!r} is not a version; write one such as 18.5")
    version = SystemVersion(int(match[1]), int(match[2]), int(match[3] or 0))
    if version.major not in _SUPPORTED_MAJOR:
        known = ", ".join(str(major) for major in sorted(_SUPPORTED_MAJOR))
        raise BadCatalogueError(f"iOS {text} is not emulated; major versions: {known}")
    return version
