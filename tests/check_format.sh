#!/usr/bin/env bash
# check_format.sh ROOT: fails when clang-format would change a C++ file. Skips (77) where it is not installed.
set -euo pipefail
cd "$1"
if ! command -v clang-format >/dev/null; then
  echo "skipped: clang-format is not installed"
  exit 77
fi
find src include examples tests -name '*.cpp' -print0 -o -name '*.h' -print0 | xargs -0 clang-format --dry-run -Werror
