"""How bytes travel to a virtual iPhone: frames, ports, packets, and what serves a connection."""
