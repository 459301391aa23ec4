#!/bin/sh
# From what train.py left to the shipped folder: export, calibration, figures, card.
# usage: finish.sh PYTHON OUT TOKENIZER.json DATA WORK      (OUT has gate.npz.0, gate.npz.1, gate.json)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=$1 out=$2 tokenizer=$3 data=$4 work=$5
model="$here/../../python/lily/gate/models/lily_gate"
export PYTHONPATH="$here/../../python${PYTHONPATH:+:$PYTHONPATH}"
mkdir -p "$work"
"$python" "$here/export.py" --parts "$out/gate.npz" --tokenizer "$tokenizer" --out "$model"
"$python" "$here/calibrate.py" --model "$model" --data "$data" --out "$work/calibration.json"
"$python" "$here/export.py" --parts "$out/gate.npz" --tokenizer "$tokenizer" --out "$model" \
    --calibration "$work/calibration.json"
"$python" "$here/evaluate.py" read --model "$model" --data "$data" --readings "$work/readings.pkl"
"$python" "$here/evaluate.py" report --data "$data" --readings "$work/readings.pkl" \
    --calibration "$work/calibration.json" --out "$work/figures.json"
"$python" "$here/card.py" --figures "$work/figures.json" --training "$out/gate.json" --model "$model"
