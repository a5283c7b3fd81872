"""Apps of a virtual iPhone: packages, processes, and the reports on their ends."""
