#!/usr/bin/env bash
# python -m bench gpu, with its result file in $OUT.
# usage: tools/h200/bench.sh [options of bench gpu]
source "$(dirname "$0")/setup.sh"
status=0
touch "$scratch/start"
# Not through bench/__main__.py, which imports the other benchmarks and all that they need.
timeout "${LIMIT_S:-480}" python3 -c '
import argparse, sys
from bench import gpu
parser = argparse.ArgumentParser()
gpu.add_options(parser)
gpu.run(parser.parse_args(sys.argv[2:]))
' gpu "$@" >"$OUT/bench.log" 2>&1 || status=$?
find bench/results -name '*.json' -newer "$scratch/start" -exec cp {} "$OUT/" \;
tail -c "${TAIL_BYTES:-11000}" "$OUT/bench.log"
exit "$status"
