#!/bin/sh
# Makes clang 22 for the CUDA kernels in a manylinux image, which has none: the one inside zig's
# package, whose PTX is the same, byte for byte, as that of Debian's clang 22.
set -eu
python="$(ls -d /opt/python/cp312-cp312/bin/python)"
"$python" -m pip install --quiet ziglang==0.17.1
printf '#!/bin/sh\nexec "%s" -m ziglang clang "$@"\n' "$python" > /usr/local/bin/clang-22
chmod +x /usr/local/bin/clang-22
clang-22 --version
