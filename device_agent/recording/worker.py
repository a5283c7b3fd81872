"""`python -m device_agent.recording.worker`: the worker of one iPhone, with what it says above TLS recorded.

It takes the arguments of `python -m device_agent.ios_worker`; DYNOFARM_WORKER_COMMAND puts it in its place.
"""

import os
import sys
from collections.abc import Sequence

from device_agent.ios_worker import __main__ as worker
from device_agent.recording.plaintext import ENV_PLAINTEXT_FOLDER, sink_from_environment


def run(arguments: Sequence[str]) -> int:
    """As the worker's own; 2 when the environment names no folder for the recording."""
    sink = sink_from_environment(f"worker-{os.getpid()}")
    if sink is None:
        sys.stderr.write(f"set {ENV_PLAINTEXT_FOLDER} to the folder of the recording\n")
        return 2
    try:
        from device_agent.ios_worker.plaintext import record_plaintext
    except ImportError:
        # The worker itself says what must be installed.
        return worker.run(arguments)
    record_plaintext(sink)
    try:
        return worker.run(arguments)
    finally:
        sink.finish()


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
