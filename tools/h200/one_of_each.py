"""Runs each kernel once, at the packaged model's shapes, for checkers that slow everything down.

Every tensor is an allocation of its own, of exactly its size, so that a step over an end is a step
out of memory. What is computed is judged by tests/kernels, not here.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from lily._native import kernels as native
from lily.errors import InvalidInput

from bench.gpu import launched
from bench.kernel_cases import Case, decode_cases, expert_stacks
from bench.kernel_memory import Memory
from bench.prefill_cases import prefill_cases
from bench.shapes import TINY

STORAGES = ("q4", "q8", "bf16", "f32")
CONTEXTS = (3, 700)  # one part, and several
# One for every tile of a dense and of a grouped product, each with a rest.
LENGTHS = (2, 3, 7, 20, 40, 150, 200)
DIMS = (16, 32, 64, 128, 256)  # of keys, and from 64 on of heads
POSITIONS = (0, 33)
WIDE = replace(TINY, hidden=512, width=512)


class _Exact:
    """In the place of a pool: a new allocation for every cut."""

    def __init__(self, device: native.Device, block: np.ndarray, dtype: str) -> None:
        self._device, self._block, self._dtype = device, block, dtype

    def cut(self, shape: Sequence[int]) -> native.Tensor:
        """A tensor of this shape."""
        values = np.resize(self._block, shape)
        bits16 = self._dtype in ("bf16", "f16")
        return self._device.tensor(values, self._dtype) if bits16 else self._device.tensor(values)


class ExactMemory(Memory):
    """Tensors that share no allocation."""

    def _make_pool(self, kind: str) -> _Exact:  # type: ignore[override]
        whole = super()._make_pool(kind)
        block = whole.cut([self._pool_bytes // 64]).numpy()
        return _Exact(self.device, block, {"codes": "u8", "f32": "f32"}.get(kind, "bf16"))


def _linear_row(memory: Memory, storage: str, cols: int, dtype: str) -> Iterator[Case]:
    """One row by a plain product, which decode does with a norm folded in."""
    x = memory.normal(1, cols) if dtype == "f32" else memory.activation(1, cols)
    weight = memory.matrix(storage, 77, cols)

    def plain(step: native.Step) -> None:
        native.linear(step, memory.empty(1, 77), x, [weight])

    def add(step: native.Step) -> None:
        native.linear_add(step, memory.empty(1, 77), x, weight)

    yield Case("linear", "row", f"{dtype} 77x{cols}", 1, 0, plain)
    yield Case("linear", "row_add", f"{dtype} 77x{cols}", 1, 0, add)


def _mixed_experts(memory: Memory, first: str, second: str) -> Iterator[Case]:
    """Routed experts stored in one way, the shared one in another."""
    hidden, width, slots = TINY.hidden, TINY.width, TINY.slots
    stacks = expert_stacks(memory, TINY, first)
    weights = native.MoeWeights(
        router=memory.matrix(first, TINY.experts, hidden),
        shared_router=memory.matrix(first, 1, hidden),
        **stacks,
        shared_gate=memory.matrix(second, width, hidden),
        shared_up=memory.matrix(second, width, hidden),
        shared_down=memory.matrix(second, hidden, width),
        slots=slots,
    )
    x, gain = memory.normal(1, hidden), memory.normal(hidden)
    act, shared = memory.normal(slots, width), memory.normal(1, width)
    logits = memory.empty(1, TINY.experts + 1)  # all equal, which chooses the first
    ids = memory.tensor(np.arange(slots, dtype=np.uint32)[None])

    def router(step: native.Step) -> None:
        found = memory.empty(1, TINY.experts + 1)
        native.moe_router(step, found, shared, x, gain, 1e-6, weights)

    def down(step: native.Step) -> None:
        shares = memory.normal(1, slots + 1)
        native.moe_down(step, x, act, shared, logits, ids, shares, weights)

    yield Case("moe", "router", f"{first}, {second}", 1, 0, router)
    yield Case("moe", "down", f"{first}, {second}", 1, 0, down)


def _encoder(memory: Memory) -> Iterator[Case]:
    """The gate's encoder: windows of 1, 40 and 128 rows, with the lengths of its own model."""
    lengths = np.array([0, 1, 41, 169], np.uint32)
    rows, hidden, heads, inner = 169, 384, 12, 1536
    offsets, row = memory.tensor(lengths), memory.normal(hidden)
    x, y = memory.normal(rows, hidden), memory.empty_activation(rows, hidden)
    places = memory.tensor(np.arange(rows, dtype=np.uint32))

    def embed(step: native.Step) -> None:
        table = memory.normal(rows, hidden)
        native.encoder_embed(step, y, x, places, places, table, table, row, row, 1e-12)

    def norm(step: native.Step) -> None:
        native.encoder_norm(step, y, x, row, row, row, 1e-12)

    def attention(step: native.Step) -> None:
        qkv, bias = memory.normal(rows, 3 * hidden), memory.normal(3 * hidden)
        native.encoder_attention(step, y, qkv, bias, offsets, heads, 128)

    def gelu(step: native.Step) -> None:
        act = memory.empty_activation(rows, inner)
        native.encoder_gelu(step, act, memory.normal(rows, inner), memory.normal(inner))

    def pool(step: native.Step) -> None:
        native.encoder_pool(step, memory.empty_activation(3, 2 * hidden), x, offsets)

    for record in (embed, norm, attention, gelu, pool):
        yield Case("encoder", record.__name__, f"{rows}x{hidden}", 1, 0, record)


def _other_dims(memory: Memory, dim: int) -> Iterator[Case]:
    """Kernels that are made for one size of a head."""
    shape = replace(TINY, key_dim=dim, value_dim=dim, head_dim=max(dim, 64))
    found = [
        *decode_cases(memory, shape, "q4", CONTEXTS),
        *prefill_cases(memory, shape, "q4", LENGTHS[-1:], POSITIONS),
    ]
    yield from (case for case in found if case.family in ("attention", "delta", "rope"))


def cases(device: native.Device, storages: Sequence[str]) -> Iterator[Case]:
    """All kernels for each storage of weights."""
    memory = ExactMemory(device, 1 << 20)
    for storage in storages:
        yield from decode_cases(memory, TINY, storage, CONTEXTS)
        yield from prefill_cases(memory, TINY, storage, LENGTHS, POSITIONS)
        # Wide rows are split, which the packaged model has none of.
        for cols in (384, 4096, 8192):
            yield from _linear_row(memory, storage, cols, "f32")
            yield from _linear_row(memory, storage, cols, device.activation_dtype)
        for other in storages:
            yield from _mixed_experts(memory, storage, other)
    # Columns in whole slices, as integer matrix units take them.
    yield from decode_cases(memory, WIDE, "q4", CONTEXTS)
    yield from _encoder(memory)
    for dim in DIMS:
        yield from _other_dims(memory, dim)


def main() -> int:
    """Run them; say which, and which are not there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--storage", default=",".join(STORAGES))
    parser.add_argument("--only", default="", help="regular expression over 'family_kernel shape'")
    options = parser.parse_args()
    device = native.Device(options.device)
    begin, ran, missing = time.perf_counter(), set(), set()
    for case in cases(device, options.storage.split(",")):
        name = f"{case.family}_{case.kernel}"
        if not re.search(options.only, f"{name} {case.shape}"):
            continue
        step = native.Step(device)
        case.record(step)
        try:
            device.run(step)
        except InvalidInput as error:
            missing.add(str(error))
            continue
        for kernel in launched(step):
            if kernel not in ran:
                print(kernel, flush=True)
            ran.add(kernel)
    for text in sorted(missing):
        print(f"NOT RUN: {text}")
    print(
        f"ran {len(ran)} kernels in {time.perf_counter() - begin:.1f} s, {len(missing)} not there"
    )
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
