"""Every selector and constant that the Metal device uses is Metal's, by two independent sources."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from metal.host_faults import DEVICE, metal_build
from metal.oracles import (
    constants_of_metal_cpp,
    read_pyobjc,
    selectors_of_metal_cpp,
    used_constants,
    used_selectors,
)

BUILD = metal_build()
# What PyObjC's wheel for Metal does not know: Foundation, and those properties of Metal's classes
# that need no description. For these metal-cpp is the only source.
FOUNDATION = {
    "UTF8String",
    "alloc",
    "arrayWithObject:",
    "code",
    "drain",
    "fileURLWithPath:",
    "init",
    "localizedDescription",
    "methodSignatureForSelector:",
    "operatingSystemVersion",
    "processInfo",
    "stringWithCString:encoding:",
    "thermalState",
}
PROPERTIES = {
    "setBinaryArchives:",
    "setComputeFunction:",
    "setLanguageVersion:",
    "setMaxTotalThreadsPerThreadgroup:",
    "setUrl:",
}
pytestmark = pytest.mark.skipif(BUILD is None, reason="no build of the Metal device")


def headers() -> Path:
    """The metal-cpp that the build was made with."""
    assert BUILD is not None
    cache = (BUILD / "CMakeCache.txt").read_text()
    found = re.search(r"^LILY_METAL_CPP:PATH=(.+)$", cache, re.MULTILINE)
    assert found is not None
    return Path(found[1])


def objects() -> list[Path]:
    """What the device's files were compiled to."""
    assert BUILD is not None
    found = list((BUILD / "CMakeFiles").glob("lily_engine.dir/src/device/metal/*.o"))
    assert len(found) >= 8
    return [path for path in found if "metal_cpp.cpp" not in path.name]


@pytest.fixture(scope="module")
def pyobjc():
    """The wheel that LILY_PYOBJC_METAL names."""
    wheel = os.environ.get("LILY_PYOBJC_METAL")
    if not wheel:
        pytest.skip("SELECTORS ARE NOT COMPARED: LILY_PYOBJC_METAL names no wheel of PyObjC")
    return read_pyobjc(Path(wheel))


def simulated_selectors() -> set[str]:
    """Those that the simulated Metal answers to."""
    text = "".join(path.read_text() for path in (Path(__file__).parent / "simulated").glob("*.cpp"))
    return set(re.findall(r'\badd\(\s*(?:"[^"]+"|name),\s*"([^"]+)"', text))


def used() -> set[str]:
    """Selectors of the device, as metal-cpp spells them."""
    known = selectors_of_metal_cpp(headers())
    return {known[name] for name in used_selectors(objects())}


def test_the_simulation_answers_to_every_selector():
    """So none is left untried; metal-cpp asks for signatures only where a method is missing."""
    assert len(used()) > 50
    assert used() - simulated_selectors() == {"methodSignatureForSelector:"}


def test_pyobjc_knows_every_selector(pyobjc):
    """But for those that it cannot know, each named here."""
    assert used() - pyobjc.selectors() == FOUNDATION | PROPERTIES
    encoder = {
        "dispatchThreadgroups:threadsPerThreadgroup:",
        "memoryBarrierWithScope:",
        "setBuffer:offset:atIndex:",
        "setBufferOffset:atIndex:",
        "setBytes:length:atIndex:",
        "updateFence:",
        "waitForFence:",
    }
    assert encoder <= used() & pyobjc.protocols["MTLComputeCommandEncoder"]
    assert {"addAllocation:", "requestResidency"} <= pyobjc.protocols["MTLResidencySet"]


def test_constants_have_one_value(pyobjc):
    """In metal-cpp, with which the library is compiled, and in PyObjC."""
    known = constants_of_metal_cpp(headers())
    used = used_constants(sorted(DEVICE.glob("*.*")), known)
    metal = {name for name in used if name.startswith("MTL")}
    assert {"MTLBarrierScopeBuffers", "MTLDispatchTypeConcurrent"} <= metal
    differ = {name: (known[name], pyobjc.constants.get(name)) for name in metal}
    assert {name: pair for name, pair in differ.items() if pair[0] != pair[1]} == {}
