"""Emulated iPhones behind a usbmuxd-compatible socket, against which unmodified clients run (docs/adr/0017).

A process of its own, `python -m device_agent.virtual`. The app on a device is the real runtime as a child
process. What the devices decide is an assumption until a real one was recorded; every record says virtual.
"""
