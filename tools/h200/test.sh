#!/usr/bin/env bash
# The kernel tests on the device "cuda", and the packaged model whole. Leaves kernels.xml, pytest.log
# and summary.txt in $OUT.
# usage: tools/h200/test.sh [options of pytest]
source "$(dirname "$0")/setup.sh"
status=0
export OPENBLAS_NUM_THREADS=2  # of each of the workers, which compute references
timeout "${LIMIT_S:-300}" python3 -m pytest tests/kernels tests/engine/test_gpu_*.py \
  --require-device cuda -k "cuda or gpu" \
  -q --tb=short -p no:cacheprovider -n "${WORKERS:-8}" --junitxml="$OUT/kernels.xml" "$@" \
  >"$OUT/pytest.log" 2>&1 || status=$?
tail -n 3 "$OUT/pytest.log"
python3 tools/h200/summary.py "$OUT/kernels.xml" "$OUT/pytest.log" | tee "$OUT/summary.txt"
exit "$status"
