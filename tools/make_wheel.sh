#!/usr/bin/env bash
# make_wheel.sh [OUT]: builds the wheel coppice_llm-*.whl into the folder OUT (default: dist). Its library asks for nothing
# that glibc 2.28 lacks (cmake/Portable.cmake); auditwheel checks that, and gives the wheel its name. Two builds of one
# commit have the same bytes.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=$(mkdir -p "${1:-$root/dist}" && cd "${1:-$root/dist}" && pwd)
platform=manylinux_2_28_x86_64
tools=$root/.venv-wheel

if ! cmp -s "$root/tools/wheel-lock.txt" "$tools/installed"; then
  echo "wheel: installing what builds and checks it into $tools" >&2
  python3 -m venv "$tools"
  "$tools/bin/pip" install -q --no-deps --require-hashes -r "$root/tools/wheel-lock.txt"
  cp "$root/tools/wheel-lock.txt" "$tools/installed"
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
SOURCE_DATE_EPOCH=$(git -C "$root" log -1 --format=%ct 2>/dev/null || stat -c %Y "$root/CMakeLists.txt")
export SOURCE_DATE_EPOCH
PATH=$tools/bin:$PATH "$tools/bin/pip" --disable-pip-version-check wheel -q --no-build-isolation --no-deps --no-index \
  --wheel-dir "$scratch" "$root"
PATH=$tools/bin:$PATH auditwheel repair --plat "$platform" --wheel-dir "$out" "$scratch"/coppice_llm-*.whl
ls -l "$out"/coppice_llm-*"$platform"*.whl
