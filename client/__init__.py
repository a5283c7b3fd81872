"""The typed REST client and the command `dynofarm`. It starts other roles as processes and imports none."""
