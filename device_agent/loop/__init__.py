"""The device agent itself: who it is, what it claims, and the loop that keeps it going."""
