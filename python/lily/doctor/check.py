"""What a check is: inputs drawn once, a kernel recorded over them, and what must come out.

Owns the form that `cases_decode` and `cases_prefill` fill, and how one is run on a device. Knows no
kernel by name.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from lily._native import kernels as native
from lily.doctor.compare import Difference, Rule, compare, same_bits
from lily.doctor.tensors import Array, Place

EPS = 1e-6


@dataclass(frozen=True)
class Prepared:
    """A check with its inputs."""

    # Puts the kernel into a step; turn 0 is what `want` speaks of, others read other experts.
    record: Callable[[Place, native.Step, int], None]
    want: Callable[[], dict[str, Array]]  # in NumPy, for inputs in float32
    rules: Callable[[str], Mapping[str, Rule]]  # by the type of activations on the device
    turns: int = 1
    # Makes of a device's raw results what is compared.
    read: Callable[[dict[str, Array]], dict[str, Array]] = dict


@dataclass(frozen=True)
class Check:
    """One kernel at one shape of one model."""

    kernel: str
    model: str
    shape: str
    prepare: Callable[[np.random.Generator], Prepared]
    needs_bytes: int  # of inputs, for one device
    # What one run must read (and write, where it does), or compute; 0: not worth timing.
    moved_bytes: int = 0
    flops: int = 0

    @property
    def name(self) -> str:
        """As findings call it."""
        return f"{self.kernel} [{self.model}: {self.shape}]"

    def prepared(self) -> Prepared:
        """With the same inputs in every process."""
        return self.prepare(np.random.default_rng(zlib.crc32(self.name.encode())))


@dataclass(frozen=True)
class Outcome:
    """What running a check showed."""

    difference: Difference
    launched: str  # names of the kernels


def run(check: Check, device: native.Device, reference: native.Device | None) -> Outcome:
    """Compare a device with another, or with NumPy; every run twice, which must agree in each bit.

    Raises StrayWrite, and whatever the device raises.
    """
    prepared, activation = check.prepared(), device.activation_dtype
    got, repeated, launched = _results(prepared, device, activation)
    if reference is None:
        want = prepared.want()
    else:
        want = prepared.read(_results(prepared, reference, activation)[0])
    found = compare(prepared.read(got), want, prepared.rules(activation))
    if not found.text and repeated:
        found = Difference(float("inf"), repeated)
    return Outcome(found, launched)


def _results(
    prepared: Prepared, device: native.Device, activation: str
) -> tuple[dict[str, Array], str, str]:
    place, step = Place(device, activation), native.Step(device)
    prepared.record(place, step, 0)
    device.run(step)
    first = place.results()
    place.reset()
    device.run(step)
    names = dict.fromkeys(
        line.removeprefix("|").split()[0] for line in step.describe().splitlines()
    )
    return first, same_bits(first, place.results()), "+".join(names)
