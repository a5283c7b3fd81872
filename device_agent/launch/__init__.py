"""A runtime is a process: started, found again after a restart, ended, and its end read."""
