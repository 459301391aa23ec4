#!/bin/bash
# One call on a GPU machine: makes data on the first call, trains for a while, leaves results in $OUT.
# usage: run_h200.sh CARRY_DIR CALL_SECONDS [TOTAL_SECONDS]    (call again with the same total)
set -e
carry=$(realpath "$1") call=$2 total=${3:-1240}
cd "$(dirname "$0")"
work=${WORK:-/var/tmp/lily_tiny}
out=${OUT:-$work/out}
export PYTHONUNBUFFERED=1 LILY_TINY_LEXICON=$carry/lexicon.json TORCHINDUCTOR_CACHE_DIR=$work/inductor
mkdir -p "$work/data" "$work/run" "$out"
if [ ! -f "$work/data/started" ]; then
  touch "$work/data/started"
  cp "$carry"/tokenizer.json "$carry"/val_*.npy "$work/data"
  # In a session of its own, so that it outlives this call if need be.
  setsid nohup python3 data.py shards --natural "$carry" --out "$work/data" \
    --count "${SHARDS:-640}" --procs $(($(nproc) - 2)) >"$work/data.log" 2>&1 &
fi
python3 train.py --data "$work/data" --out "$work/run" --total-s "$total" --call-s "$call" ${EXTRA} \
  2>&1 | tee -a "$work/train.log"
cp "$work/run/log.jsonl" "$work/run/final.json" "$out"
[ -n "$NO_WEIGHTS" ] || split -b 15m "$work/run/weights.safetensors" "$out/weights."
cat "$work/data.log"
ls "$work/data" | wc -l
nvidia-smi --query-gpu=name,memory.used --format=csv,noheader || true
