#!/usr/bin/env bash
# What is too long for every change: the statistical tests in full, then the whole greedy sweep.
# Both store their result under tests/results; the sweep goes on where an earlier run was stopped.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOMP_SPINCOUNT="${GOMP_SPINCOUNT:-1000}"
mkdir -p tests/results
if [ "$(cat tests/results/full-tests.commit 2>/dev/null)" != "$(git rev-parse HEAD)" ]; then
    OMP_NUM_THREADS=1 .venv/bin/python -m pytest -m full tests --junitxml=tests/results/full-tests.xml
    git rev-parse HEAD >tests/results/full-tests.commit
fi
exec .venv/bin/python -m tests.sweep "$@"
