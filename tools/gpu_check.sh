#!/usr/bin/env bash
# Checks and measures the GPU backend on a machine with a GPU, within 25 minutes (docs/gpu.md):
#
#   gpu_check.sh OUT [STEP...]
#
# Steps: device build conformance models laws sanitizer roofline bench pytorch; without any, all in this order. OUT gets a
# log and, where a step measures, a JSON record of each. A step that fails or runs out of time does not stop the next ones;
# the exit status is 0 if none failed. A step that the machine cannot run (no compute-sanitizer, no PyTorch) is skipped, and
# the summary says so.
set -uo pipefail

if [[ $# -lt 1 ]]; then
  sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
out=$(realpath -m "$1")  # relative to where the caller is
shift
cd "$(dirname "$0")/.."
steps=("$@")
[[ ${#steps[@]} -eq 0 ]] && steps=(device build conformance models laws sanitizer roofline bench pytorch)
mkdir -p "$out"
build=build-gpu
unset COPPICE_CUDA_LIBRARY  # the tests' driver without a device

# Seconds that each step may take: 25 minutes in all.
declare -A limit=([device]=20 [build]=420 [conformance]=90 [models]=60 [laws]=240 [sanitizer]=240 [roofline]=60 [bench]=270
                  [pytorch]=100)

device() { nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv; }

build() {
  bash tools/setup_gpu.sh &&
    cmake --preset release -B "$build" -DCOPPICE_GPU_KERNELS=ON -DCOPPICE_BUILD_BENCHMARKS=ON &&
    cmake --build "$build" --parallel --target coppice kernels_test model_test engine_test gpu_roofline
}

# A filter that matches nothing, or tests that all skip, must not pass for success.
run_tests() {
  local program=$1 filter=$2 record=$out/$(basename "$1")${3:-}.json
  "$build/src/$program" --gtest_filter="$filter" --gtest_output="json:$record" &&
    python3 - "$record" <<'PYTHON'
import json
import sys
cases = [case for suite in json.load(open(sys.argv[1]))["testsuites"] for case in suite["testsuite"]]
ran = [case for case in cases if case["result"] == "COMPLETED"]
print(f"{len(ran)} of {len(cases)} cases ran")
sys.exit(not ran)
PYTHON
}

# Plain weights too by the project's own products, where cuBLASLt is installed.
conformance() {
  run_tests kernels/kernels_test '*gpu*:-GpuFake*' &&
    COPPICE_CUBLASLT_LIBRARY=none run_tests kernels/kernels_test '*ProductConformance*gpu*' -own
}
models() { run_tests model/model_test '*gpu*'; }
laws() { run_tests engine/engine_test '*Laws*gpu*:*Tiers*gpu*'; }

sanitizer() {
  command -v compute-sanitizer >/dev/null || return 77
  local tool
  for tool in memcheck racecheck synccheck; do
    compute-sanitizer --tool "$tool" --error-exitcode 1 "$build/src/kernels/kernels_test" \
      --gtest_filter='*MatchesFp64*gpu*:*MatchFp64*gpu*:*KeepingAllKeys*gpu*' || return 1
  done
}

roofline() { "$build/gpu_roofline" >"$out/roofline.json" && cat "$out/roofline.json"; }

bench() {
  "$build/coppice" bench --backend gpu --shape llama-3.1-8b:bf16 -p 4096,16384,32768 -n 64 -r 3 \
    --prune sliminfer --prune 'sliminfer+minference+ftp' -o json >"$out/bench.json" && cat "$out/bench.json" &&
    COPPICE_CUBLASLT_LIBRARY=none "$build/coppice" bench --backend gpu --shape llama-3.1-8b:bf16 -p 32768 -r 1 \
      -o json >"$out/bench-own.json" && cat "$out/bench-own.json"
}

pytorch() { python3 benchmarks/gpu_pytorch.py >"$out/pytorch.json" && cat "$out/pytorch.json"; }

export out build
export -f device build run_tests conformance models laws sanitizer roofline bench pytorch
failed=0
: >"$out/summary.txt"
for step in "${steps[@]}"; do
  if [[ -z ${limit[$step]:-} ]]; then
    echo "gpu_check: no step '$step'" >&2
    exit 2
  fi
  begin=$SECONDS
  timeout "${limit[$step]}" bash -uo pipefail -c "$step" >"$out/$step.log" 2>&1
  status=$?
  case $status in
    0) result=passed ;;
    77) result=skipped ;;
    124) result="out of time (${limit[$step]} s)" failed=1 ;;
    *) result="failed ($status)" failed=1 ;;
  esac
  echo "$step: $result, $((SECONDS - begin)) s" | tee -a "$out/summary.txt"
done
exit $failed
