"""The process next to the devices: leases attempts, runs them, and loses no event.

It reads `contract/` only. The controller may be away, this process may be killed at any point and the
runtime may crash: what is in the attempt's folder is enough to go on (attempt_folder.py).
"""
