"""What everything in the device agent may use; it imports nothing else of it."""
