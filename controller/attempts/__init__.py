"""The life of runs, jobs, attempts and devices. No clock in here: the time is passed in."""
