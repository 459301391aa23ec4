"""The mutation test: each planted fault is noticed, by who should; and metal/ itself passes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import pytest

from metal import lint
from metal.mutations import Outcome, Workshop, fiber_build
from metal.mutations_checks import CHECKS
from metal.mutations_faults import FAULTS, run_fault, run_plain
from metal.under_way import under_way

BUILD = fiber_build()
pytestmark = pytest.mark.skipif(
    BUILD is None,
    reason="THE MUTATION TEST IS SKIPPED: no fiber build; LILY_FIBERS_BUILD names its folder "
    "(cmake -G Ninja -DLILY_FIBERS=ON)",
)


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Outcome]]]:
    """What the checks say of each fault, and of the kernels as they are."""
    assert BUILD is not None
    shop = Workshop(BUILD, Path(tmp_path_factory.mktemp("mutations")))
    jobs = {"check": partial(run_plain, shop), "fault": partial(run_fault, shop)}
    with under_way(request, jobs) as started:
        yield started


@pytest.mark.parametrize("check", CHECKS)
def test_metal_passes(outcomes, check):
    """Or what notices faults would notice anything."""
    outcome = outcomes[check].result()
    assert outcome.notice == "passed", outcome.message


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_is_noticed(outcomes, fault):
    """By the race finder, the bounds, the divergence finder, the launch, or wrong numbers."""
    outcome = outcomes[fault.name].result()
    assert outcome.notice in fault.notice, f"{outcome.notice}: {outcome.message}"


# A check compiles one kernel file, and these two need another beside them. They are tested in
# tests/kernels/test_prefill_lanes.py; the second's product has faults by linear_gemm_lanes.metal.
WITHOUT_FAULTS = {"delta_lanes.metal", "moe_grouped_lanes.metal"}


def test_faults_cover_metal():
    """Many faults, in every kernel file and every check, and of every kind."""
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 80
    assert {fault.check for fault in FAULTS} == CHECKS.keys() | {"lint"}
    files = {str(it.relative_to(lint.METAL)) for it in lint.kernel_files()}
    assert {check.source for check in CHECKS.values()} == files - WITHOUT_FAULTS
    noticed = {notice for fault in FAULTS for notice in fault.notice}
    assert noticed == {"race", "divergence", "bounds", "launch", "memory", "numbers", "lint"}
