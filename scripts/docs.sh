#!/usr/bin/env bash
# Writes again what is generated from the code; tests fail when a committed copy is stale.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/python -m contract.generate
for generator in controller/attempts/diagram.py; do
    if [ -e "$generator" ]; then
        module=${generator%.py}
        .venv/bin/python -m "${module//\//.}"
    fi
done
