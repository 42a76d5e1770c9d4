#!/usr/bin/env bash
# Installs Triton into .venv-gpu/, which the build needs to compile the GPU kernels (docs/dependencies.md). It needs no
# GPU. Says nothing when it is there.
set -euo pipefail
cd "$(dirname "$0")/.."

version=3.9.0
python=.venv-gpu/bin/python
if [[ -x $python ]] && "$python" -c "import triton; assert triton.__version__ == '$version'" 2>/dev/null; then
  exit 0
fi
python3 -m venv .venv-gpu
"$python" -m pip install --quiet "triton==$version" numpy setuptools
"$python" -c "import triton"
