#!/usr/bin/env bash
# Style, types and the rules about who may import whom. All of them run; the exit status is 1 if one failed.
set -uo pipefail
cd "$(dirname "$0")/.."
failed=0
check() {
    printf '%s\n' "$*"
    ".venv/bin/$1" "${@:2}" || failed=1
}
check ruff check .
check ruff format --check .
check mypy
check lint-imports --no-cache --no-logo
exit "$failed"
