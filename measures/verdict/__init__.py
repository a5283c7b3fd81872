"""What the values of two arms say: pairs, verdicts, the gate, and the report of one device."""
