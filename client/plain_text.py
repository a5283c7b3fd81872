"""Text of a report that a terminal shows as it is."""

from contract.rest import DeviceReportView


def operating_system(device: DeviceReportView) -> str:
    """`Debian 12`, since a bare number reads as one of cores; the version alone where no name was told."""
    name = device.conditions.os_name if device.conditions is not None else ""
    return f"{name} {device.os_version}".strip()


def counted(count: int, noun: str) -> str:
    """`1 call`, `3 calls`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
