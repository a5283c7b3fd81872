"""What passes between host and device, recorded without identifiers: fixtures of a real device."""
