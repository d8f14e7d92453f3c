#!/usr/bin/env bash
# The tests, except those that need a container engine and the whole sweep. Arguments go to pytest.
#   OUTRIDER_TEST_WORKERS   files tested side by side; default: 2
set -euo pipefail
cd "$(dirname "$0")/.."
# Threads that spin while another process computes slow both down several times over.
export GOMP_SPINCOUNT="${GOMP_SPINCOUNT:-1000}" OMP_NUM_THREADS="${OMP_NUM_THREADS:-2}"
exec .venv/bin/python -m pytest --durations=20 -m "not full and not compose" \
    -n "${OUTRIDER_TEST_WORKERS:-2}" --dist loadfile --no-loadscope-reorder "$@"
