#!/bin/sh
# Trains on a GPU machine from the folder of package.sh; the parts of gate.npz and gate.json land in OUT.
# usage: run_h200.sh FOLDER OUT SECONDS
set -eu
carry=$(cd "$1" && pwd) out=$2
work=$(mktemp -d)
mkdir -p "$work/public"
tar -C "$work/public" -xzf "$carry/public.tar.gz"
cp "$carry/backbone.npz" "$carry/pools.json.gz" "$carry/tokenizer.json" "$work/"
export PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=1
nvidia-smi -L
python3 "$carry/code/train.py" --carry "$work" --out "$out" --seconds "$3" --workers 14 \
    --checkpoint "$work/gate.checkpoint"
