"""Targets: what a device agent can run an attempt on, behind one port."""
