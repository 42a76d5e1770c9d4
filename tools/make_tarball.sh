#!/usr/bin/env bash
# make_tarball.sh [OUT]: packs what make_wheel.sh built into OUT (default: dist): coppice-VERSION-linux-x86_64.tar.gz with
# the program, the library and its headers, for systems with glibc 2.28 or later. Two runs give the same bytes.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=$(mkdir -p "${1:-$root/dist}" && cd "${1:-$root/dist}" && pwd)
build=$root/build-wheel
[[ -f $build/libcoppice.so ]] || { echo "tarball: $build has no library; make wheel builds it" >&2; exit 1; }
version=$(sed -nE 's/^project\(coppice VERSION ([0-9.]+).*/\1/p' "$root/CMakeLists.txt")
name=coppice-$version-linux-x86_64
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cmake --install "$build" --component tarball --prefix "$scratch/$name" --strip >/dev/null
epoch=$(git -C "$root" log -1 --format=%ct 2>/dev/null || stat -c %Y "$root/CMakeLists.txt")
tar -C "$scratch" --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner -c "$name" | gzip -n9 > "$out/$name.tar.gz"
ls -l "$out/$name.tar.gz"
