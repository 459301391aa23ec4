"""Planted faults of the Metal device's host code: each is noticed, in words that name it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from metal.host_fault_list import FAULTS
from metal.host_faults import DEVICE, Workshop, metal_build
from metal.under_way import under_way

BUILD = metal_build()
pytestmark = pytest.mark.skipif(
    BUILD is None,
    reason="THE FAULTS OF THE METAL DEVICE ARE SKIPPED: no build with LILY_METAL and "
    "LILY_NATIVE_TESTS; LILY_METAL_BUILD names its folder",
)


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[str]]]:
    """What the tests say of each fault."""
    assert BUILD is not None
    shop = Workshop(BUILD, Path(tmp_path_factory.mktemp("faults")))
    with under_way(request, {"fault": shop.run}) as started:
        yield started


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_is_noticed(outcomes, fault):
    """By the rule that it breaks, or by what it makes wrong."""
    text = outcomes[fault.name].result()
    assert re.search(fault.says, text), text[-2000:]


def test_faults_cover_the_device():
    """Many, and in every file that talks to Metal."""
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 30
    files = {path.name for path in DEVICE.glob("*.cpp")}
    assert files - {fault.file for fault in FAULTS} <= {
        *("absent.cpp", "gpu.cpp", "health.cpp", "metal_cpp.cpp", "pacer.cpp"),
    }
