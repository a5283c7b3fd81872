"""`python -m runtime.bench`: see runtime/bench/cli.py."""

import os
import sys


def _main() -> int:
    # As the runtime's own entry does (runtime/__main__.py), and before torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    from runtime.bench.cli import main

    return main()


if __name__ == "__main__":
    sys.exit(_main())
