#!/usr/bin/env bash
# fuzz.sh MINUTES [TARGET...]: runs each fuzzer of build-fuzz (all of them by default) in turn, together for about MINUTES. Targets
# whose inputs are slow get larger shares of the time (share_of). It begins from the target's
# seeds and from what earlier runs found (build-fuzz/corpus). Prints for each the inputs that it ran, and adds a line to
# build-fuzz/counts.tsv: date, target, inputs, seconds. Fails if an input broke something; the input lies in
# build-fuzz/crashes, and belongs into tests/fuzz/regressions once it is fixed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
minutes=${1:?usage: fuzz.sh MINUTES [TARGET...]}
shift
build=build-fuzz
programs=()
if [[ $# -gt 0 ]]; then
  for name in "$@"; do programs+=("$build/tests/fuzz/fuzz_$name"); done
else
  for program in "$build"/tests/fuzz/fuzz_*; do [[ -f $program && -x $program ]] && programs+=("$program"); done
fi
[[ ${#programs[@]} -gt 0 ]] || { echo "fuzz: no fuzzers in $build: cmake --preset fuzz && cmake --build $build --target fuzzers" >&2; exit 1; }

# A grammar or a request takes a thousand times as long as a header of a file: with equal shares, grammars had 0.4 % of
# all inputs.
share_of() {
  case "$1" in
    grammar | json_schema | regex | schema_check) echo 8 ;;
    chat_forms | http | parameters) echo 3 ;;
    *) echo 1 ;;
  esac
}

mkdir -p "$build/crashes" "$build/logs"
shares=0
for program in "${programs[@]}"; do shares=$((shares + $(share_of "${program##*/fuzz_}"))); done
failed=0
for program in "${programs[@]}"; do
  name=${program##*/fuzz_}
  seconds=$((minutes * 60 * $(share_of "$name") / shares))
  [[ $seconds -gt 0 ]] || seconds=1  # 0 means no limit to libFuzzer
  "$program" write "$build"
  log=$build/logs/$name.log
  # What one input may cost, with sanitizers that make it several times as slow: without them grammars take up to half a
  # second and 30 MiB. ASan would keep 256 MiB of freed memory.
  if ! ASAN_OPTIONS=quarantine_size_mb=32 nice -n 15 "$program" "$build/corpus/$name" -dict="$build/$name.dict" -max_total_time="$seconds" -max_len=65536 \
      -timeout=5 -malloc_limit_mb=512 -rss_limit_mb=512 -print_final_stats=1 -artifact_prefix="$build/crashes/$name-" \
      >"$log" 2>&1; then
    failed=1
    echo "fuzz: $name broke: $(grep -m1 -E 'ERROR|SUMMARY|runtime error|deadly signal' "$log" || tail -1 "$log")"
  fi
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  printf '%-14s %12s inputs in %4d s\n' "$name" "${runs:-?}" "$seconds"
  printf '%s\t%s\t%s\t%s\n' "$(date +%F)" "$name" "${runs:-0}" "$seconds" >>"$build/counts.tsv"
done
exit "$failed"
