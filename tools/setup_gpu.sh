#!/usr/bin/env bash
# setup_gpu.sh [FOLDER]: a virtual environment with the compiler of the GPU kernels (300 MB from PyPI, 1.1 GB on disk), each
# package held to its checksum. Does nothing where it is complete. A build that finds it compiles the kernels; one without
# has no GPU backend, and the kernels' tests skip. It needs no GPU.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=${1:-$root/.venv-gpu}
wanted=$root/tools/gpu-lock.txt

cmp -s "$wanted" "$folder/installed" && exit 0

log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "setup: installing the compiler of the GPU kernels into $folder" >&2
if ! { python3 -m venv "$folder" && "$folder/bin/pip" install -q --retries 1 --timeout 20 \
    --no-deps --require-hashes -r "$wanted"; } >"$log" 2>&1; then
  echo "setup: could not install it: $(grep -m1 -i error "$log" || tail -1 "$log")" >&2
  exit 1
fi
cp "$wanted" "$folder/installed"
