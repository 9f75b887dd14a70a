#!/usr/bin/env bash
# How the cost of a search grows with GPUs, layers and microbatches: a Markdown table with bars.
# usage: bench/growth.sh [MOECAST] ; CPU seconds are user time of the whole program, all threads.
set -euo pipefail
moecast=${1:-build/release/moecast}

row() {  # row NAME FLAGS...: one search of DeepSeek-V3
  local name=$1 out cpu
  shift
  out=$(mktemp)
  cpu=$( { TIMEFORMAT=%U; time "$moecast" search --model deepseek-v3 --system gb200-nvl72 \
    --seq-length 4096 --precision mxfp8 --json "$@" > "$out" || true; } 2>&1 | tail -1)
  read -r legal simulated < <(tr ',{}' '\n\n\n' < "$out" |
    awk -F: '/"legal"/ {l = $2} /"simulated"/ {s = $2} END {print l + 0, s + 0}')
  rm -f "$out"
  awk -v n="$name" -v l="$legal" -v s="$simulated" -v c="$cpu" 'BEGIN {
    bar = ""; for (i = 0; i < c * 20 && i < 60; ++i) bar = bar "#"
    printf "| %s | %d | %d | %.2f | %s |\n", n, l, s, c, bar }'
}

echo '| search | legal | simulated | CPU s | |'
echo '| --- | --- | --- | --- | --- |'
for gpus in 64 256 1024 4096 16384; do row "$gpus GPUs" --gpus $gpus --global-batch-size $((16 * gpus)); done
for layers in 15 30 61 122; do
  row "256 GPUs, $layers layers" --gpus 256 --global-batch-size 4096 \
    --set "model_overrides={num_hidden_layers: $layers}"
done
for batch in 1024 4096 16384 65536; do
  row "256 GPUs, global batch $batch" --gpus 256 --global-batch-size $batch
done
