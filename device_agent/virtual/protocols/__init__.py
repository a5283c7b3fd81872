"""What a virtual iPhone answers: one service of usbmuxd, lockdownd or the tunnel per module."""
