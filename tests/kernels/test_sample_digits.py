"""sample: logits by integer matrix units (digits.h), as NVIDIA's tiles choose."""

from __future__ import annotations

import numpy as np
import pytest
from lily._native import kernels as native

from kernels import reference, test_sample
from kernels.compare import assert_close, sum_tolerance
from kernels.weights import make_weight

EPS = 1e-6
pytestmark = pytest.mark.usefixtures("nvidia_tiles")


@pytest.mark.parametrize("vocab", [1, native.SAMPLE_BLOCK_ROWS + 17])
def test_logits(device, rng, vocab):
    """A tile with one row, and two blocks."""
    head = make_weight(rng, "q4", 64, (vocab, 512), scale=0.3)
    x = (rng.standard_normal((1, 512)) + 0.2).astype(np.float32)
    gain = rng.uniform(0.5, 1.5, 512).astype(np.float32)
    logits, blocks = test_sample.run_logits(device, x, gain, head)
    normed = reference.rms_norm(x, gain, EPS)
    magnitude = np.abs(normed) @ head.magnitude.T
    limits = {"tolerance": sum_tolerance(2 * 512), "magnitude": magnitude}
    assert_close(logits, normed @ head.values.T, **limits)
    test_sample.assert_blocks(blocks, logits[0])
