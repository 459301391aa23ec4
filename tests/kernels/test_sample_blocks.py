"""sample: draws from more blocks of the vocabulary than there are candidates."""

from __future__ import annotations

import numpy as np

from kernels.draw import Filters
from kernels.test_sample import BLOCK_ROWS, CANDIDATES, assert_drawn, random_logits


def test_more_blocks_than_candidates(device, rng):
    """Blocks with none of the best; and ties, where earlier blocks win, whose ids are lower."""
    vocab = (CANDIDATES + 9) * BLOCK_ROWS + 17
    assert_drawn(device, random_logits(rng, vocab, 3), Filters(temperature=0), 5, exact=True)
    tied = rng.integers(-2, 2, vocab).astype(np.float32)
    assert_drawn(device, tied, Filters(temperature=0), 5, exact=True)
    high = np.full(vocab, -1, np.float32)
    high[5 * BLOCK_ROWS : 6 * BLOCK_ROWS] = 7  # all of the best in one block
    high[-1] = 8
    assert_drawn(device, high, Filters(temperature=0), 5, exact=True)
