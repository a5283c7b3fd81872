"""What the control socket tells of the emulator."""

import os

from contract.virtual_devices import DeviceCounters, EmulatorView, VirtualApp, VirtualDeviceView
from device_agent.virtual.emulator import Emulator, Unit


def emulator_view(emulator: Emulator) -> EmulatorView:
    return EmulatorView(
        usbmuxd_socket=str(emulator.usbmuxd_socket),
        control_socket=str(emulator.control_socket),
        pid=os.getpid(),
        open_sockets=emulator.usbmuxd.open_sockets,
        devices=tuple(_device_view(emulator, unit) for unit in emulator.units),
    )


def _device_view(emulator: Emulator, unit: Unit) -> VirtualDeviceView:
    device, record = unit.device, unit.device.record
    if unit.apps.running:
        # Apps write without asking; nobody else does.
        device.disk.measure()
    return VirtualDeviceView(
        udid=record.udid,
        device_name=record.device_name,
        product_type=record.product_type,
        ios_version=record.ios_version,
        device_ids=tuple(each.number for each in emulator.usbmuxd.entries_of(device)),
        boot_id=record.boot_id,
        is_locked=record.is_locked,
        trust=record.trust,
        developer_mode=record.developer_mode,
        image_mounted=record.image_mounted,
        paired_hosts=len(record.hosts),
        free_bytes=device.disk.free_bytes,
        memory_limit_bytes=record.memory_limit_bytes,
        battery_percent=record.battery.level_percent,
        temperature_c=record.battery.temperature_c,
        thermal_state=record.thermal_state,
        low_power_mode=record.low_power_mode,
        apps=_apps(unit),
        installed=tuple(sorted(record.apps)),
        counters=_counters(unit),
        played=tuple(unit.played),
    )


def _apps(unit: Unit) -> tuple[VirtualApp, ...]:
    return tuple(
        VirtualApp(
            pid=app.pid,
            host_pid=app.host_pid,
            name=app.name,
            bundle_id=app.bundle_id,
            footprint_bytes=app.footprint_bytes,
            peak_bytes=app.peak_bytes,
        )
        for app in unit.apps.running
    )


def _counters(unit: Unit) -> DeviceCounters:
    device = unit.device
    return DeviceCounters(
        connections=len(device.open_wires),
        labels=device.open_wires,
        apps=len(unit.apps.running),
        assertions=device.assertions,
        tunnels=device.tunnels,
        faults_waiting=device.triggers.waiting,
    )
