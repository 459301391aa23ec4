#!/bin/sh
# Puts what a training machine needs into one folder: backbone, name pools, public sets, this code.
# usage: package.sh PYTHON BACKBONE.safetensors TOKENIZER.json DATA FOLDER
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=$1 backbone=$2 tokenizer=$3 data=$4 out=$5
mkdir -p "$out/code"
cp -r "$here"/*.py "$here/templates" "$out/code/"
rm -rf "$out/code/__pycache__"
cp "$tokenizer" "$out/tokenizer.json"
[ -e "$out/backbone.npz" ] || "$python" "$here/transport.py" --bert "$backbone" --out "$out/backbone.npz"
[ -e "$out/pools.json.gz" ] || "$python" "$here/pools.py" --out "$out/pools.json.gz"
# Only what sources.py may train on travels; the test and development parts stay behind.
tar -C "$data" -czf "$out/public.tar.gz" presidio_research/synth_dataset_v2.json presidio_research/templates.txt \
    tab/tab_train_dev.jsonl btc/btc.train wnut17/wnut17train.conll meddocan/corpus/train banking77/train.csv \
    clinc150/data_full.json llmprivacy/synthetic_dev.jsonl
