# Sourced by the scripts beside it on the GPU machine: puts the packed module where Python finds it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
command -v nvidia-smi >/dev/null || { echo "no GPU here; see tools/h200/README.md" >&2; exit 2; }
packed=build/h200
scratch="$PWD/build/h200-scratch"  # stays there from call to call, which what is carried does not
export OUT="${OUT:-$scratch/out}"
mkdir -p "$OUT" "$scratch"
rm -f python/lily/_native*.so
cp "$packed"/_native*.so python/lily/
export PYTHONPATH="$PWD/python:$PWD" PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# Modules that the driver has compiled once serve every later process.
export CUDA_CACHE_PATH="$scratch/jit" CUDA_CACHE_MAXSIZE=2147483648
if ! python3 -c 'import hypothesis, pytest, pytest_timeout, xdist' 2>/dev/null; then
  python3 -m pip install -q --no-index --no-deps --no-cache-dir --upgrade \
    --target "$scratch/site" "$packed"/wheels/*.whl
  export PYTHONPATH="$PYTHONPATH:$scratch/site"
fi
nvidia-smi --query-gpu=name,driver_version,memory.used --format=csv,noheader
python3 -c '
from lily._native import kernels
device = kernels.Device("cuda")
print(device.description)
'
