"""attention at decode by matrix units whose lanes are known, as NVIDIA's tiles choose."""

from __future__ import annotations

import pytest

from kernels import test_attention

pytestmark = pytest.mark.usefixtures("nvidia_tiles")


@pytest.mark.parametrize("position", [0, 15, 63, 64, 200, 9000])
@pytest.mark.parametrize("shape", [(8, 1, 256, 64), (4, 2, 128, 32), (3, 1, 64, 24)])
def test_decode_attention(device, rng, shape, position):
    """A block with one token, whole and partial blocks and parts; heads fewer than columns."""
    test_attention.assert_decode(device, rng, shape, position, "bf16")
