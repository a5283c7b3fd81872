"""Events and artifacts come in: checked line by line, stored once, in order, without a gap."""
