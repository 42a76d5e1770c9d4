#!/usr/bin/env bash
# Installs the Debian packages that the build and the tests need and that are missing. Says nothing and needs no
# network when all are there; without root or passwordless sudo it prints the line to run and fails.
#
#   setup.sh        all that coppice itself needs
#   setup.sh web    a browser as well, for the test of the server's page, where there is none
#   setup.sh train  what the trainer and the oracles of the tests need as well: libtorch, a fast BLAS, NumPy, Jinja (121 MB to
#                   download, 500 MB on disk); and Open MPI, for coppice-mpi
#   setup.sh mpi    Open MPI alone: one prompt over several processes (docs/scale-out.md)
set -euo pipefail

# Why each of them: docs/dependencies.md.
packages=(g++ cmake ninja-build make pkg-config python3 python3-venv libfmt-dev libpcre2-dev
          libutf8proc-dev libexpat1-dev liburing-dev libxxhash-dev nlohmann-json3-dev libcli11-dev libboost1.81-dev libeigen3-dev
          libzmq3-dev cppzmq-dev poppler-utils unzip libgtest-dev libgmock-dev)
[[ ${1:-} == train ]] && packages+=(libtorch-dev libopenblas0-pthread python3-numpy python3-jinja2)
[[ ${1:-} == train || ${1:-} == mpi ]] && packages+=(libopenmpi-dev openmpi-bin)
if [[ ${1:-} == web ]] && ! command -v chromium google-chrome >/dev/null; then
  packages+=(chromium-headless-shell)
fi

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "setup: not a Debian system; needed are what Debian calls: ${packages[*]}" >&2
  exit 0  # they may well be there: the configure step names what is not
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
  [[ $status == "install ok installed" ]] || missing+=("$package")
done
[[ ${#missing[@]} -eq 0 ]] && exit 0

as_root=()
if [[ $EUID -ne 0 ]]; then
  as_root=(sudo -n)
  if ! sudo -n true 2>/dev/null; then
    echo "setup: some packages are missing; install them, as root, with" >&2
    echo "  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
fi

echo "setup: installing ${missing[*]}" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
quietly() {
  if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "$@" </dev/null >"$log" 2>&1; then
    cat "$log" >&2
    echo "setup: failed: $*" >&2
    exit 1
  fi
}
quietly apt-get update -q
quietly apt-get install -y -q --no-install-recommends "${missing[@]}"
