"""The devices that kernel tests run on: every instruction set and thread count, and every GPU.

This file owns the choice of devices. `--require-device NAME` makes a missing one a failure.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from lily._native import kernels as native
from lily.errors import DeviceError

THREADS = (1, 2, 3)


@cache
def open_device(name: str, isa: str, threads: int) -> native.Device:
    """One device for the whole run: thread pools are not free."""
    return native.Device(name, threads=threads, isa=isa)


def gpus() -> list[str]:
    """Names of the GPU devices that open here."""
    found = []
    for name in ("metal", "cuda"):
        try:
            open_device(name, "", 0)
        except DeviceError:
            continue
        found.append(name)
    return found


DEVICES = [("cpu", isa, threads) for isa in native.isas() for threads in THREADS]
DEVICES += [(name, "", 0) for name in gpus()]


def _label(spec: tuple[str, str, int]) -> str:
    return "-".join(str(part) for part in spec if part)


@pytest.fixture(scope="session", autouse=True)
def _required_devices(request: pytest.FixtureRequest) -> None:
    # A GPU test that did not run is not a pass.
    for name in request.config.getoption("--require-device"):
        assert name in {spec[0] for spec in DEVICES}, f"device '{name}' is required, but not here"


@pytest.fixture(scope="session", params=DEVICES, ids=_label)
def device(request: pytest.FixtureRequest) -> native.Device:
    """Each device in turn."""
    return open_device(*request.param)


@pytest.fixture(scope="session", params=native.isas())
def thread_counts(request: pytest.FixtureRequest) -> list[native.Device]:
    """The same instruction set with 1, 2 and 3 threads."""
    return [open_device("cpu", request.param, threads) for threads in THREADS]


@pytest.fixture(scope="session")
def host() -> native.Device:
    """Any one device, for tests of what is refused before a device sees it."""
    return open_device("cpu", "", 1)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Random numbers that depend on the name of the test alone, not on its device."""
    return np.random.default_rng(list(request.node.originalname.encode()))
