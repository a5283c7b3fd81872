"""`python -m runtime`: an attempt (runtime/measured/cli.py), or `calibrate` (runtime/calibration/cli.py)."""

import os
import signal
import sys


def _end_on_signals() -> None:
    """Until the attempt listens to signals itself: torch takes seconds to load, and nothing has begun."""
    from contract.runtime_link import RuntimeExit

    # SIGTERM last: where that is caught, both are.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(RuntimeExit.CANCELLED))


def _main() -> int:
    # OpenMP reads this when torch is loaded. Its default lets idle threads spin; beside any other busy
    # process on the same cores (agent, controller) that was measured to make a step 4 to 10 times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    if sys.argv[1:2] == ["calibrate"]:
        from runtime.calibration import cli as calibrate_cli

        exit_code = calibrate_cli.main(sys.argv[2:])
    else:
        _end_on_signals()
        from runtime.measured.cli import main

        exit_code = main()
    # All is written. Python gives a handled signal back to the system while it takes itself down, which
    # with torch takes a while: one that comes then would replace the exit code.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    return exit_code


if __name__ == "__main__":
    sys.exit(_main())
