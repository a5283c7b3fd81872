"""What lockdownd tells of a device, by domain."""

from typing import Any

from contract import ios_app
from device_agent.virtual.device.device import VirtualDevice


def domain_values(device: VirtualDevice, domain: str) -> dict[str, Any]:
    """Values of one domain; of an unknown one none."""
    match domain:
        case "":
            return _identity(device)
        case "com.apple.disk_usage" | "com.apple.disk_usage.factory":
            return _disk_usage(device)
        case "com.apple.mobile.battery":
            battery = device.record.battery
            return {
                "BatteryCurrentCapacity": battery.level_percent,
                "BatteryIsCharging": battery.is_charging,
                "ExternalChargeCapable": True,
                "ExternalConnected": True,
                "FullyCharged": battery.level_percent == 100,
                "GasGaugeCapability": True,
                "HasBattery": True,
            }
        case "com.apple.security.mac.amfi":
            return {"DeveloperModeStatus": device.record.developer_mode}
        case "com.apple.mobile.wireless_lockdown":
            return {"EnableWifiConnections": False}
        case "com.apple.international":
            return {"Language": "en", "Locale": "en_GB", "Keyboard": "en_GB"}
        case ios_app.VIRTUAL_DOMAIN:
            return {
                "Virtual": True,
                "MemoryBytes": device.record.model.memory_bytes,
                "ThermalState": device.record.thermal_state,
                "LowPowerMode": device.record.low_power_mode,
            }
        case _:
            return {}


def _identity(device: VirtualDevice) -> dict[str, Any]:
    record, model, version = device.record, device.record.model, device.record.version
    return {
        "ActivationState": "Activated",
        "BoardId": model.board_id,
        "BootSessionID": record.boot_id,
        "BuildVersion": version.build,
        "ChipID": model.chip_id,
        "CPUArchitecture": "arm64e",
        "DeviceClass": model.device_class,
        "DeviceName": record.device_name,
        "DevicePublicKey": device.key.public_pem,
        "HardwareModel": model.hardware_model,
        "HumanReadableProductVersionString": str(version),
        "PasswordProtected": record.is_locked,
        "ProductName": "iPhone OS",
        "ProductType": record.product_type,
        "ProductVersion": str(version),
        "SerialNumber": record.serial_number,
        "TimeIntervalSince1970": record.now().timestamp(),
        "TimeZone": "Etc/UTC",
        "TimeZoneOffsetFromUTC": 0.0,
        "TrustedHostAttached": bool(record.hosts),
        "UniqueChipID": record.ecid,
        "UniqueDeviceID": record.udid,
        "WiFiAddress": record.wifi_address,
        # No key of Apple's: every record that is made of these values says that the device is emulated.
        "DynofarmVirtual": True,
    }


def _disk_usage(device: VirtualDevice) -> dict[str, Any]:
    device.disk.measure()
    return {
        "TotalDiskCapacity": device.record.capacity_bytes,
        "TotalDataCapacity": device.record.capacity_bytes,
        "TotalDataAvailable": device.disk.free_bytes,
        "AmountDataAvailable": device.disk.free_bytes,
        "AmountDataReserved": 0,
        "TotalSystemCapacity": 0,
        "TotalSystemAvailable": 0,
    }
