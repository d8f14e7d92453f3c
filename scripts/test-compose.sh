#!/usr/bin/env bash
# Builds the image, brings the compose cluster up under a name of its own, tests it from outside, takes it down.
set -euo pipefail
cd "$(dirname "$0")/.."

die() { echo "test-compose: $*" >&2; exit 1; }
docker info >/dev/null 2>&1 || die "no Docker engine is running, or this user may not use it"
if docker compose version >/dev/null 2>&1; then
    compose=(docker compose)
elif command -v docker-compose >/dev/null; then
    compose=(docker-compose)
else
    die "neither docker compose nor docker-compose is installed"
fi

PYTHON=.venv/bin/python
UP_S=600
export COMPOSE_PROJECT_NAME="outrider-test-$$"
export OUTRIDER_IMAGE=outrider:test
OUTRIDER_PORT=$("$PYTHON" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export OUTRIDER_PORT
export OUTRIDER_COMPOSE="${compose[*]}" OUTRIDER_COMPOSE_ADDRESS="127.0.0.1:$OUTRIDER_PORT"

finish() {
    status=$?
    trap - EXIT INT TERM
    if [ "$status" != 0 ]; then
        "${compose[@]}" ps || true
        "${compose[@]}" logs --no-color --tail 60 || true
    fi
    "${compose[@]}" down --volumes --remove-orphans || status=1
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

"${compose[@]}" build
timeout "$UP_S" "${compose[@]}" up -d || die "the cluster did not come up within $UP_S s"
healthy() { "$PYTHON" -m outrider.serving.healthcheck "$OUTRIDER_COMPOSE_ADDRESS"; }
for _ in $(seq 24); do healthy && break; sleep 2; done
healthy || die "the orchestrator does not answer on $OUTRIDER_COMPOSE_ADDRESS"
"$PYTHON" -m pytest -m compose tests/e2e/test_compose.py
