#!/usr/bin/env bash
# setup_router.sh [FOLDER]: a virtual environment with vllm-router (140 MB from PyPI), for packaging/vllm-router.sh and the test
# server_router, each package held to its checksum. Does nothing where it is complete.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
exec bash "$root/tools/setup_clients.sh" "${1:-$root/.venv-router}" "$root/tools/router-lock.txt"
