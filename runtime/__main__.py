"""`python -m runtime`: see runtime/engine/cli.py."""

import os
import sys


def _main() -> int:
    # OpenMP reads this when torch is loaded. Its default lets idle threads spin; beside any other busy
    # process on the same cores (agent, controller) that was measured to make a step 4 to 10 times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    from runtime.engine.cli import main

    return main()


if __name__ == "__main__":
    sys.exit(_main())
