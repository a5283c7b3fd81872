"""What every state may become, as tables, and the periods of the protocol. No store in here."""
