#!/usr/bin/env bash
# What holds on this machine's GPU, and how fast it is; see gpu_check.py. Nothing is fetched: PyTorch, transformers and
# NumPy must be there. Exit status 2: there is no GPU.
#   PYTHON   interpreter; default: .venv's where there is one, else python3
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON="${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}"
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
exec "$PYTHON" -m benchmarks.gpu_check "$@"
