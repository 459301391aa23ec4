"""The devices that kernel tests run on: every instruction set and thread count, and every GPU.

This file owns the choice of devices. `--require-device NAME` makes a missing one a failure.
"""

from __future__ import annotations

import sys
import tempfile
from functools import cache
from typing import Any

import numpy as np
import pytest
from lily._native import kernels as native
from lily.errors import DeviceError

from kernels.arena import Arena

THREADS = (1, 2, 3)


IS_SIMULATED = sys.platform == "linux"  # the Metal device, where it is there


@cache
def open_device(name: str, isa: str, threads: int) -> native.Device:
    """One device for the whole run: thread pools are not free."""
    if name != "metal" or not IS_SIMULATED:
        return native.Device(name, threads=threads, isa=isa)
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as home:
        patch.setenv("LILY_SIMULATED_METAL", "seed=1")
        patch.setenv("HOME", home)  # of its caches
        return native.Device(name)


MISSING: dict[str, str] = {}  # why a GPU device does not open here


def gpus() -> list[str]:
    """Names of the GPU devices that open here."""
    found = []
    for name in ("metal", "cuda", "fibers"):
        try:
            open_device(name, "", 0)
        except DeviceError as error:
            MISSING[name] = str(error)
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
        why = MISSING.get(name, "no such device")
        assert name in {spec[0] for spec in DEVICES}, f"device '{name}' is required: {why}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what GPU kernels are not made for: caches in f32, and shapes that a file names.

    The engine refuses such models there; a kernel that is missing by mistake still fails its tests.
    """

    def fits(item: pytest.Item) -> bool:
        params, device = params_of(item), device_of(item)
        if device in (None, "cpu"):
            return True
        if device == "metal" and "nvidia_tiles" in item.fixturenames:  # type: ignore[attr-defined]
            return False  # Apple's library leaves these kernels out
        takes = getattr(item.module, "gpu_takes", None)  # type: ignore[attr-defined]
        if takes and "shape" in params and not takes(params["shape"]):
            return False
        return params.get("cache_dtype") != "f32"

    kept = without_repeats([item for item in items if fits(item)])
    left_out = [item for item in items if item not in set(kept)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


def params_of(item: pytest.Item) -> dict[str, Any]:
    """What a test is parametrized with."""
    return getattr(getattr(item, "callspec", None), "params", {})


def device_of(item: pytest.Item) -> str | None:
    """The device of a test; None where it has none, or all that it is for are absent."""
    spec = params_of(item).get("device")
    return spec[0] if isinstance(spec, tuple) else None


def without_repeats(items: list[pytest.Item]) -> list[pytest.Item]:
    """Each test once on the simulated Metal device: its kernels are those of "fibers"."""
    seen: set[tuple[object, str]] = set()

    def is_new(item: pytest.Item) -> bool:
        if not IS_SIMULATED or device_of(item) != "metal":
            return True
        key = (item.fspath, item.originalname)  # type: ignore[attr-defined]
        seen_before = key in seen
        seen.add(key)
        return not seen_before

    return [item for item in items if is_new(item)]


@pytest.fixture
def nvidia_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are recorded for NVIDIA's tiles, which "fibers" runs as well."""
    monkeypatch.setattr(Arena, "tiles", "nvidia")


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
