"""The one way over HTTP to a controller, for every role that calls one."""
