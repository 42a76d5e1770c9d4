#!/usr/bin/env bash
# setup_clients.sh [FOLDER [LOCK]]: a virtual environment with the HTTP clients that tests/server/server_clients_test.py drives
# (about 1 GB from PyPI), or with what another file of tools/ locks, each package held to its checksum. Does nothing where it is
# complete. Where they cannot be had, it says so and succeeds: the test then skips.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=${1:-$root/.venv-clients}
wanted=${2:-$root/tools/clients-lock.txt}

cmp -s "$wanted" "$folder/installed" && exit 0

log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "setup: installing what ${wanted##*/} lists, for the server's tests, into $folder" >&2
if ! { python3 -m venv "$folder" && "$folder/bin/pip" install -q --retries 1 --timeout 20 \
    --no-deps --require-hashes -r "$wanted"; } >"$log" 2>&1; then
  echo "setup: could not install it, its test will skip: $(grep -m1 -i error "$log" || tail -1 "$log")" >&2
  exit 0
fi
cp "$wanted" "$folder/installed"
