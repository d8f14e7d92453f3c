#!/usr/bin/env bash
# Makes .venv with everything that the make targets need. A second call is quick while pyproject.toml stays as it is.
#   PYTHON           interpreter to build on; default: the first Python >= 3.11 found
#   OUTRIDER_TORCH   requirement for PyTorch, such as "torch==2.13.0+cpu"; default: see TORCH below
set -euo pipefail
cd "$(dirname "$0")/.."

TORCH="${OUTRIDER_TORCH:-torch==2.13.0}"
VENV=.venv
STAMP="$VENV/.outrider-setup"
STUBS="$VENV/.outrider-stubs"

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }
is_debian() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

recent_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
can_make_venv() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

find_python() {
    local name
    for name in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
        if command -v "$name" >/dev/null && recent_enough "$name"; then command -v "$name"; return; fi
    done
    return 1
}

python_with_venv() {
    local python version
    python=$(find_python) || {
        [ -z "${PYTHON:-}" ] || die "PYTHON=$PYTHON is no Python 3.11 or newer"
        is_debian || die "Python 3.11 or newer is needed; install it or set PYTHON"
        say "installing python3 with apt-get"
        install_packages python3 python3-venv
        python=$(find_python) || die "this system's python3 is older than 3.11; install a newer one or set PYTHON"
    }
    if ! can_make_venv "$python"; then
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        is_debian || die "$python lacks venv or ensurepip: install python$version-venv (Debian, Ubuntu) and run again"
        say "installing python$version-venv with apt-get"
        install_packages "python$version-venv" || install_packages python3-venv
        can_make_venv "$python" || die "$python still lacks venv or ensurepip: install python$version-venv"
    fi
    echo "$python"
}

install_packages() {
    apt-get update -qq >&2 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >/dev/null
}

checksum() { cat "$@" | sha256sum | cut -d' ' -f1; }

torch_is_there() {
    [ -z "${OUTRIDER_TORCH:-}" ] || return 1
    "$VENV/bin/python" - <<'PY' 2>/dev/null
import sys
from importlib.metadata import version
major, minor = (int(part) for part in version("torch").split("+")[0].split(".")[:2])
sys.exit(not (2, 11) <= (major, minor) < (2, 14))
PY
}

# The kernels' threads come from the system's OpenMP; without it they run on one.
have_openmp() { "$VENV/bin/python" -c 'import ctypes; ctypes.CDLL("libgomp.so.1")' 2>/dev/null; }

install_openmp() {
    if is_debian; then
        say "installing libgomp1 with apt-get"
        install_packages libgomp1 && return
    fi
    say "libgomp is missing: kernels will run on one thread"
}

install_all() {
    local pip=("$VENV/bin/python" -m pip --disable-pip-version-check install)
    [ -t 2 ] || pip+=(-qq)  # progress bars are for people
    if ! torch_is_there; then
        if [ -z "${OUTRIDER_TORCH:-}" ] && [ ! -e /dev/nvidiactl ]; then
            say "no NVIDIA GPU here. If pip starts to fetch CUDA packages, a CPU build saves gigabytes:"
            say "  set OUTRIDER_TORCH=torch==2.13.0+cpu and PIP_EXTRA_INDEX_URL to PyTorch's CPU index"
        fi
        say "installing $TORCH"
        "${pip[@]}" "$TORCH"
    fi
    have_openmp || install_openmp
    say "installing outrider and its tools"
    "${pip[@]}" -e ".[dev,loadtest,plot]"
}

key="$(checksum pyproject.toml hatch_build.py scripts/setup.sh) $TORCH"
stubs_key=$(find proto -name '*.proto' -print0 | sort -z | xargs -0 cat | checksum -)

if [ ! -x "$VENV/bin/python" ] || ! "$VENV/bin/python" -c 'import pip' 2>/dev/null; then
    python=$(python_with_venv)
    say "making $VENV with $python"
    rm -rf "$VENV"
    "$python" -m venv "$VENV"
fi
if [ "$(cat "$STAMP" 2>/dev/null)" != "$key" ]; then
    install_all
    echo "$key" >"$STAMP"
    echo "$stubs_key" >"$STUBS"
fi
if [ "$(cat "$STUBS" 2>/dev/null)" != "$stubs_key" ] || [ ! -e outrider/v1/types_pb2.py ]; then
    say "generating the gRPC stubs"
    "$VENV/bin/python" hatch_build.py
    echo "$stubs_key" >"$STUBS"
fi
