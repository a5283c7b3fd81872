"""The commands of `dynofarm`, one file per group; client/cli.py gives them their names."""
