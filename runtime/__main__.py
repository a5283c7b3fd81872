"""`python -m runtime`: see runtime/engine/cli.py."""

import sys

from runtime.engine.cli import main

if __name__ == "__main__":
    sys.exit(main())
