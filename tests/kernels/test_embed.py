"""embed: rows of the embedding table, in each storage."""

from __future__ import annotations

import numpy as np
import pytest
from lily._native import kernels as native

from kernels.arena import Arena
from kernels.compare import assert_close, assert_same_bits
from kernels.refusals import assert_refused, tensors_of
from kernels.weights import STORAGES, Weight, make_weight

VOCAB = 37


def run(device: native.Device, table: Weight, ids: np.ndarray) -> np.ndarray:
    """Rows of the table."""
    arena = Arena(device)
    hidden = arena.output(len(ids), table.values.shape[1])
    arena.run(native.embed_rows, hidden, arena.input(ids), arena.matrix(table))
    return hidden.numpy()


@pytest.mark.parametrize("tokens", [1, 2, 3, 7, 33, 130])
@pytest.mark.parametrize(("storage", "group"), STORAGES)
def test_rows(device, rng, storage, group, tokens):
    """Unquantised rows are copied exactly; quantised ones are one multiply and one add."""
    for width in (3 * group,) if group else (1, 31, 33, 100):
        table = make_weight(rng, storage, group, (VOCAB, width), scale=0.7)
        ids = rng.integers(0, VOCAB, tokens, dtype=np.uint32)
        ids[0], ids[-1] = VOCAB - 1, 0
        got = run(device, table, ids)
        if group:
            # Two roundings: scale * code, and the sum.
            assert_close(got, table.values[ids], tolerance=2.0**-23, magnitude=table.magnitude[ids])
        else:
            np.testing.assert_array_equal(got, table.values[ids].astype(np.float32))


def test_thread_counts_agree(thread_counts, rng):
    """A row does not depend on who computed it."""
    table = make_weight(rng, "q4", 64, (VOCAB, 192), scale=1.0)
    ids = rng.integers(0, VOCAB, 33, dtype=np.uint32)
    assert_same_bits([{"hidden": run(device, table, ids)} for device in thread_counts])


def test_refusals(host, rng):
    """Each wrong tensor is named."""
    table = make_weight(rng, "q8", 32, (VOCAB, 96), scale=1.0)
    arena = Arena(host)
    valid = {
        "hidden": arena.output(3, 96),
        "ids": arena.input(np.zeros(3, np.uint32)),
        "table": arena.matrix(table),
    }
    assert_refused(native.embed_rows, valid, tensors_of(valid))
    assert_refused(native.embed_rows, valid | {"hidden": arena.output(3, 95)}, "hidden has shape")
    assert_refused(native.embed_rows, valid | {"hidden": arena.output(4, 96)}, "hidden has shape")


def test_refuses_damaged_matrices(host, rng):
    """Memory, groups and factors of a matrix must fit each other."""
    arena = Arena(host)
    weight, factors = np.zeros((4, 8), np.uint32), np.zeros((4, 2), np.uint16)
    whole, factor = arena.input(weight), arena.input(factors, "bf16")
    valid = {"hidden": arena.output(1, 64), "ids": arena.input(np.zeros(1, np.uint32))}

    def refused(message: str, storage: str, *parts: native.Tensor, **extents: int) -> None:
        table = native.Matrix(storage, *parts, **extents)
        assert_refused(native.embed_rows, valid | {"table": table}, message)

    extents = {"rows": 4, "cols": 64, "group_size": 32}
    refused(r"table.weight has 128 bytes of memory, expected 160", "q4", whole, factor, factor,
            **extents | {"rows": 5})  # fmt: skip
    refused(r"table.scales has no memory", "q4", whole, **extents)
    refused(r"table.biases has no memory", "q4", whole, factor, **extents)
    refused(r"table.scales has 8 bytes of memory, expected 16", "q4", whole,
            arena.input(factors[:2], "bf16"), factor, **extents)  # fmt: skip
    refused(r"groups of 48", "q4", whole, factor, factor, **extents | {"group_size": 48})
    refused(r"64 columns, expected a multiple", "q4", whole, factor, factor,
            **extents | {"group_size": 128})  # fmt: skip
    refused(r"table is f32 but has scales", "f32", whole, factor, factor, rows=1, cols=32)
    refused(r"table has shape \[2, 2, 64\], expected \[1, 2, 64\]", "q4", whole, factor, factor,
            **extents | {"rows": 2, "experts": 2})  # fmt: skip
