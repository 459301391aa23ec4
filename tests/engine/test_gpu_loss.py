"""A kernel that fails on a real GPU: typed errors, and a process that lives.

The driver takes the whole context from the process that ran such a kernel, so this runs in one of
its own. Needs a GPU; skipped, and counted so, without.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from lily._native import kernels as native
from lily.errors import DeviceError

# A row number far outside of the table makes the kernel read memory that nobody has.
SCRIPT = """
import numpy as np
from lily import Engine
from lily._native import kernels as native
from lily.errors import DeviceError
from kernels.arena import Arena
from kernels.weights import make_weight

engine = Engine.load(device="cuda", max_context=512)
cpu = Engine.load(device="cpu", max_context=512)
want = cpu.generate("Once upon", temperature=0, max_tokens=4).token_ids
assert engine.generate("Once upon", temperature=0, max_tokens=4).token_ids == want
arena = Arena(native.Device("cuda"))
table = make_weight(np.random.default_rng(0), "f32", 0, (8, 4096), scale=1.0)
try:
    arena.run(native.embed_rows, arena.output(1, 4096),
              arena.input(np.array([2**31], np.uint32)), arena.matrix(table))
    raise SystemExit("the kernel did not fail")
except DeviceError as error:
    print("FIRST", error)
try:
    engine.generate("Once upon", temperature=0, max_tokens=4)
    raise SystemExit("the lost device went on")
except DeviceError as error:
    print("SECOND", error)
assert cpu.generate("Once upon", temperature=0, max_tokens=4).token_ids == want
engine.close()
print("LIVES")
"""


def test_a_failing_kernel_is_an_error_and_no_end(request):
    """It is named where it failed, later calls say that the device is lost, the CPU goes on."""
    try:
        native.Device("cuda")
    except DeviceError as error:
        if "cuda" in request.config.getoption("--require-device"):
            raise
        pytest.skip(f"no GPU: {error}")
    tests = Path(__file__).resolve().parents[1]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tests, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert "embed_rows" in lines[0]
    assert lines[1].startswith("SECOND cuda: ")
    assert lines[-1] == "LIVES"
