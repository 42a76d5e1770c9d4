#!/usr/bin/env bash
# vllm-router.sh PORT WORKER=EVENTS WORKER=EVENTS...: vllm-router (PyPI, 0.1.17; tools/setup_router.sh) in front of several
# `coppice serve` of one model. A request goes to the server whose KV events announced the longest beginning of its prompt,
# and otherwise to the one with the fewest requests. docs/scale-out.md says what it buys; the test server_router runs this.
#
#   coppice serve -m model.gguf --alias model --port 8081 --kv-events tcp://127.0.0.1:5581
#   coppice serve -m model.gguf --alias model --port 8082 --kv-events tcp://127.0.0.1:5582
#   packaging/vllm-router.sh 8080 http://127.0.0.1:8081=tcp://127.0.0.1:5581 http://127.0.0.1:8082=tcp://127.0.0.1:5582
#
# VLLM_ROUTER: the program, where it is not in PATH. MODEL: the servers' --alias. Where the servers have a key, clients send it: the
# router passes it on, and uses it when it asks for a prompt's tokens.
set -euo pipefail
if [[ $# -lt 2 ]]; then
  sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
port=$1
shift
workers=()
sources=()
for pair in "$@"; do
  workers+=("${pair%%=*}")
  sources+=(--kv-event-source "$pair")
done
# A server that does not answer /health for two seconds gets no requests until it answers again.
exec "${VLLM_ROUTER:-vllm-router}" --host 127.0.0.1 --port "$port" --worker-urls "${workers[@]}" \
  --policy kv_aware "${sources[@]}" --kv-event-block-size 16 --kv-event-model "${MODEL:-model}" \
  --worker-startup-check-interval 1 --request-timeout-secs 3600 \
  --health-check-interval-secs 1 --health-check-timeout-secs 2 --health-failure-threshold 2 --health-success-threshold 1 \
  --prometheus-port "${PROMETHEUS_PORT:-29000}"
