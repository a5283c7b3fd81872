#!/usr/bin/env bash
# All that reads the code without running the tests. Every check runs; the exit code says whether all passed.
set -uo pipefail
cd "$(dirname "$0")/.."
bin=.venv/bin
failed=()

check() {
    local name=$1
    shift
    echo "== $name"
    "$@" || failed+=("$name")
}

# The tables that the migrations make must be the tables that the models declare.
migrations_match_models() (
    set -e
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    export DYNOFARM_DATABASE_URL="sqlite:///$scratch/check.db"
    "$bin/alembic" upgrade head
    "$bin/alembic" check
)

check "ruff" "$bin/ruff" check .
check "ruff format" "$bin/ruff" format --check .
check "mypy" "$bin/mypy"
check "import rules" "$bin/lint-imports"
check "contract schema is fresh" "$bin/python" -m contract.generate --check
check "migrations match the models" migrations_match_models

if [ ${#failed[@]} -gt 0 ]; then
    printf 'check: failed: %s\n' "${failed[@]}" >&2
    exit 1
fi
echo "check: all passed"
