"""A child of the doctor with a fault: ``python planted.py FAULT DEVICE REFERENCE [quick]``.

The fault sits in norm_rms on DEVICE alone; the reference stays right. "FAULT@open" strikes when a
device is opened instead. Of the other checks only a few run, before and after it; everything else
is the child that users run.
"""

from __future__ import annotations

import ctypes
import dataclasses
import sys
import time

import numpy as np
from lily._native import kernels as native
from lily.doctor import checks, child
from lily.doctor.tensors import FENCE, Place, draw_weight
from lily.errors import DeviceError

KEPT = ("embed_rows", "norm_rms", "moe_sort")
ROWS, COLS = 33, 384  # of norm_rms in a quick examination


def die_of_a_null_pointer() -> None:
    """What a kernel's bad address does to its process."""
    ctypes.string_at(0)


def hang_with_the_gil() -> None:
    """Native code that never returns and lets no other thread of Python run."""
    ctypes.PyDLL(None).pause()


def fail() -> None:
    """A command buffer that the GPU gave up."""
    raise DeviceError("norm_rms: the command buffer was aborted")


STRIKES = {
    "crash": die_of_a_null_pointer,
    "hang": hang_with_the_gil,
    "sleep": lambda: time.sleep(1000),
    "fail": fail,
    "exit": lambda: sys.exit(7),
}


def spoil(fault: str, place: Place, step: native.Step, record) -> None:
    """Record norm_rms so that its results are wrong in one way."""
    if fault == "unwritten":
        place.activation_output("y", ROWS, COLS)
        return
    record(place, step, 0)
    watched = place._watched["y"]
    if fault == "stray":  # as if the last element of the fence had been something else before
        watched.before = watched.before.copy()
        watched.before[-1] = 0
    if fault == "wrong":  # the kernel once more over its own result, from other rows
        ones = place.tensor(np.ones((ROWS, COLS), np.float32))
        gain = place.tensor(np.ones(COLS, np.float32))
        native.norm_rms(step, watched.tensor.part(FENCE, [ROWS, COLS]), ones, gain, 0.5)
    if fault == "unsteady":  # adds to what is there, so that a second run gives another result
        place.reset = lambda: None
        extra = place.inout("extra", np.zeros((1, 384), np.float32))
        rng = np.random.default_rng(0)
        weight = draw_weight(rng, "q4", 384, 64)
        native.linear_add(step, extra, place.tensor(np.ones((1, 64), np.float32)),
                          place.matrix(weight))  # fmt: skip


def plant(fault: str, device: str) -> None:
    """Put the fault into the list of checks."""
    sound = checks.all_checks

    def with_fault(*, quick: bool):
        found = [check for check in sound(quick=quick) if check.kernel in KEPT]
        return [faulty(check) if check.kernel == "norm_rms" else check for check in found]

    def faulty(check):
        def prepare(rng):
            prepared = check.prepare(rng)

            def record(place, step, turn):
                if place.device.name != device:
                    prepared.record(place, step, turn)
                elif fault in STRIKES:
                    STRIKES[fault]()
                else:
                    spoil(fault, place, step, prepared.record)

            return dataclasses.replace(prepared, record=record)

        return dataclasses.replace(check, prepare=prepare)

    checks.all_checks = with_fault


def main() -> None:
    """Plant, and answer jobs."""
    fault, device = sys.argv.pop(1), sys.argv[1]
    kind, _, where = fault.partition("@")
    if where == "open":
        child.Jobs._open = lambda self, name: STRIKES[kind]()
    else:
        plant(kind, device)
    child.main()


if __name__ == "__main__":
    main()
