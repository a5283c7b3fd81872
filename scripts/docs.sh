#!/usr/bin/env bash
# Writes again what is generated from the code; tests fail when a committed copy is stale.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/python -m contract.generate
.venv/bin/python -m controller.states.diagram
