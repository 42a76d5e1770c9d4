#!/usr/bin/env bash
# memory_32k.sh PROGRAM: 32,768 tokens of a llama-3.2-1b shape in bf16 under an address space of 8 GiB.
set -euo pipefail

program=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"$program" synth --shape llama-3.2-1b:bf16 -o "$folder/1b.gguf"
# The random model's vocabulary is of bytes: as many letters as tokens, less BOS.
head -c 32767 /dev/zero | tr '\0' 'a' >"$folder/prompt.txt"
ulimit -v $((8 * 1024 * 1024))
answer=$("$program" run -m "$folder/1b.gguf" -f "$folder/prompt.txt" -n 2 --temp 0 --ignore-eos --json)
echo "$answer"
[[ $answer == *'"prompt_tokens":32768,'* ]]
