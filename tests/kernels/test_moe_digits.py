"""moe at decode by integer matrix units (digits.h): what NVIDIA's tiles choose."""

from __future__ import annotations

import pytest

from kernels import test_moe
from kernels.layers import make_experts

pytestmark = pytest.mark.usefixtures("nvidia_tiles")


@pytest.mark.parametrize(("slots", "width"), [(8, 512), (10, 1024)])
def test_experts(device, rng, slots, width):
    """A simdgroup for each expert, and more experts than simdgroups."""
    mix = (("q8", 64), ("q4", 64), ("q4", 64))
    sizes = {"hidden": 512, "experts": 20, "width": width, "shared_width": 512}
    layer = make_experts(rng, mix, slots=slots, **sizes)
    x, gain = test_moe.row_and_gain(rng, 512)
    got = test_moe.run_decode(device, layer, x, gain)
    want = test_moe.expected_decode(layer, x, gain, got["logits"])
    own = test_moe.expected_decode(layer, x, gain, None)["logits"]
    test_moe.assert_decode(got, want | {"logits": own})
