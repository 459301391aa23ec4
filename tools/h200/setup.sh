# shellcheck shell=bash
# Sourced by the scripts beside it on the GPU machine: puts the packed module where Python finds it.
# Sets `packed`, and `scratch`, which stays from call to call as long as the machine is held.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
command -v nvidia-smi >/dev/null || { echo "no GPU here; see tools/h200/README.md" >&2; exit 2; }
packed="$PWD/build/h200"
export SCRATCH="${SCRATCH:-${TMPDIR:-/tmp}/lily-h200}"
scratch="$SCRATCH"
export OUT="${OUT:-$scratch/out}"
mkdir -p "$OUT" "$scratch"
# Only where it is another one: a process that runs may have it mapped.
module="$(cat "$packed/name")"
xz -dc "$packed/native.so.xz" >"$scratch/$module.$$"
if ! cmp -s "$scratch/$module.$$" "python/lily/$module"; then
  rm -f python/lily/_native*.so
  mv "$scratch/$module.$$" "python/lily/$module"
fi
rm -f "$scratch/$module.$$"
export PYTHONPATH="$PWD/python:$PWD" PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# Modules that the driver has compiled once serve every later process.
export CUDA_CACHE_PATH="$scratch/jit" CUDA_CACHE_MAXSIZE=2147483648
if ! python3 -c 'import hypothesis, pytest, pytest_timeout, xdist' 2>/dev/null; then
  [ -d "$scratch/site/xdist" ] || python3 -m pip install -q --no-index --no-deps --no-cache-dir \
    --upgrade --target "$scratch/site" "$packed"/wheels/*.whl
  export PYTHONPATH="$PYTHONPATH:$scratch/site"
fi
nvidia-smi --query-gpu=name,driver_version,memory.used --format=csv,noheader
python3 -c '
from lily._native import kernels
device = kernels.Device("cuda")
print(device.description)
'
