"""The machine under the process: what it is, its memory, and how busy others keep it."""
