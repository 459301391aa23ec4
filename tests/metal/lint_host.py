"""What the host records: every operation of src/ops once, for each type; and the table of names.

Steps are recorded on the CPU device, whose memory they need, with all kinds of tiles, and never
run. The table is the comment of src/cpu/kernels.h, by which people write kernels. This file holds
metal/ against both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain, product

from metal.lint import ROOT, Finding, kernel_files
from metal.lint_kernels import Argument, Kernels, read_kernels

STORAGES = {"f32": 32, "bf16": 16, "q8": 8, "q4": 4}
TYPES, CACHES = ("f32", "bf16", "f16"), ("f32", "bf16")
TILES = ("apple", "apple_tensor", "nvidia")
GROUP = 64


@dataclass(frozen=True)
class Launch:
    """One recorded dispatch."""

    kernel: str
    threads: int
    accesses: tuple[str, ...]


def parse_step(text: str) -> Iterator[Launch]:
    """Launches of a printed step."""
    for line in text.splitlines():
        match = re.fullmatch(r"[| ] (\w+) \[\d+x\d+x\d+ of (\d+)\](.*)", line)
        if match is None:
            raise LookupError(f"cannot read the step's line {line!r}")
        accesses = re.findall(r" (inout|in|out)", match[3])
        yield Launch(match[1], int(match[2]), tuple(accesses))


class Recorder:
    """Records operations over memory that nobody looks at."""

    def __init__(self, tiles: str) -> None:
        from lily._native import kernels as native

        self.native, self.device = native, native.Device("cpu", threads=1)
        self.step = native.Step(self.device, tiles=tiles)

    def tensor(self, *shape: int, dtype: str = "f32"):
        """Zeros."""
        return self.device.zeros(list(shape), dtype)

    def struct(self, bytes_: int):
        """A struct of params.h."""
        return self.tensor(bytes_, dtype="u8")

    def matrix(self, storage: str, rows: int, cols: int, experts: int = 1):
        """A stored weight."""
        weight = self.tensor(experts * rows * cols * STORAGES[storage] // 8, dtype="u8")
        factors = []
        if storage in ("q4", "q8"):
            factors = [self.tensor(experts * rows * cols // GROUP, dtype="bf16") for _ in "sb"]
        return self.native.Matrix(
            storage,
            weight,
            *factors,
            rows=rows,
            cols=cols,
            group_size=GROUP if factors else 0,
            experts=experts,
        )

    def all(self) -> list[Launch]:
        """Record everything."""
        self._rows()
        self._linear()
        for key, value in ((64, 64), (128, 64), (256, 256)):
            self._attention(head_dim=key)
            self._delta(key_dim=key, value_dim=value)
        self._delta(key_dim=16, value_dim=16)
        self._delta(key_dim=32, value_dim=16)
        for hidden, width in ((128, 64), (256, 512)):
            self._moe(hidden, width)
        self._grouped()
        self._sample()
        self._encoder()
        return list(parse_step(self.step.describe()))

    def _rows(self) -> None:
        op, t, step = self.native, self.tensor, self.step
        for storage in STORAGES:
            ids = t(3, dtype="u32")
            op.embed_rows(step, t(3, 128), ids, self.matrix(storage, 9, 128))
        for dtype in TYPES:
            op.norm_rms(step, t(3, 128, dtype=dtype), t(3, 128), t(128), 1e-6)

    def _linear(self) -> None:
        op, t, step = self.native, self.tensor, self.step
        some = product(STORAGES, (8,), (128, 512, 4096, 8192), (1, 2, 4, 7, 16, 20, 40, 129))
        for storage, rows, cols, tokens in (*some, ("q4", 9000, 256, 1)):
            matrix = self.matrix(storage, rows, cols)
            for dtype in TYPES:
                x = t(tokens, cols, dtype=dtype)
                op.linear(step, t(tokens, 2 * rows), x, [matrix, matrix])
                op.linear_add(step, t(tokens, rows), x, matrix)
            op.linear_norm(step, t(1, rows), t(1, cols), t(cols), 1e-6, [matrix])

    def _attention(self, head_dim: int) -> None:
        op, t, step = self.native, self.tensor, self.step
        for cache_type, tokens in product(CACHES, (1, 5)):
            caches = {name: t(2, 9, head_dim, dtype=cache_type) for name in ("k_cache", "v_cache")}
            layer = op.AttentionTensors(
                proj=t(tokens, 2 * head_dim * 6),
                q_gain=t(head_dim),
                k_gain=t(head_dim),
                inv_freq=t(8),
                **caches,
                q_heads=4,
                kv_heads=2,
                head_dim=head_dim,
                rotary_dims=16,
                eps=1e-6,
            )
            for dtype in TYPES:
                q = t(tokens, 4, head_dim, dtype=dtype)
                op.rope_append(step, q, layer, 0)
                op.attention_prefill(step, t(tokens, 4 * head_dim, dtype=dtype), q, layer, 0)
            if tokens == 1:
                partial_ = t(4, op.ATTENTION_MAX_SPLITS, head_dim + 2)
                cursor = self.struct(16)
                op.attention_decode(step, partial_, layer, cursor)
                op.attention_merge(step, t(1, 4 * head_dim), partial_, layer, cursor)

    def _delta(self, key_dim: int, value_dim: int) -> None:
        op, t, step = self.native, self.tensor, self.step
        channels, width = 2 * key_dim + 2 * value_dim, 2 * value_dim
        for tokens in (1, 5):
            layer = op.DeltaTensors(
                proj=t(tokens, channels + width + 4),
                conv_weight=t(channels, 4),
                conv_ring=t(4, channels),
                decay_rate=t(2),
                dt_bias=t(2),
                gain=t(value_dim),
                state=t(2, value_dim, key_dim),
                key_heads=1,
                value_heads=2,
                key_dim=key_dim,
                value_dim=value_dim,
                eps=1e-6,
            )
            if tokens == 1:
                next_state = t(2, value_dim, key_dim)
                op.delta_step(step, t(1, width), next_state, layer, self.struct(16))
            qkv, gates = t(tokens, channels), t(tokens, 2, 2)
            op.delta_conv(step, qkv, gates, layer, 0)
            for dtype in TYPES:
                op.delta_chunk(step, t(tokens, width, dtype=dtype), qkv, gates, layer)

    def _moe(self, hidden: int, width: int) -> None:
        op, t, step = self.native, self.tensor, self.step
        for first, second in product(STORAGES, STORAGES):
            stack = partial(self.matrix, first, experts=4)
            moe = op.MoeWeights(
                router=self.matrix(first, 4, hidden),
                shared_router=self.matrix(first, 1, hidden),
                gate=stack(width, hidden),
                up=stack(width, hidden),
                down=stack(hidden, width),
                shared_gate=self.matrix(second, width, hidden),
                shared_up=self.matrix(second, width, hidden),
                shared_down=self.matrix(second, hidden, width),
                slots=2,
            )
            row, gain, logits, shared = t(1, hidden), t(hidden), t(1, 5), t(1, width)
            act, ids, weights = t(2, width), t(1, 2, dtype="u32"), t(1, 3)
            op.moe_router(step, logits, shared, row, gain, 1e-6, moe)
            op.moe_gate_up(step, act, ids, weights, logits, row, gain, 1e-6, moe)
            op.moe_down(step, t(1, hidden), act, shared, logits, ids, weights, moe)

    def _grouped(self) -> None:
        op, t, step = self.native, self.tensor, self.step
        u32 = partial(t, dtype="u32")
        op.moe_route(step, u32(5, 2), t(5, 3), t(5, 5))
        op.moe_sort(step, u32(10), u32(5), u32(5, 2))
        op.moe_combine(step, t(5, 128), t(10, 128), t(5, 128), t(5, 3))
        for storage, dtype, tokens in product(STORAGES, TYPES, (5, 20, 40, 50, 200)):
            order, offsets = u32(2 * tokens), u32(5)
            x, act = t(tokens, 256, dtype=dtype), t(2 * tokens, 256, dtype=dtype)
            gate, down = (self.matrix(storage, 256, 256, 4) for _ in range(2))
            op.moe_grouped_gate_up(step, act, x, order, offsets, gate, gate, 2)
            op.moe_grouped_down(step, t(2 * tokens, 256), act, order, offsets, down)

    def _sample(self) -> None:
        op, t, step = self.native, self.tensor, self.step
        block = 16 + 8 * op.CANDIDATES
        for storage, hidden in product(STORAGES, (128, 256)):
            head, x, gain = self.matrix(storage, 9, hidden), t(1, hidden), t(hidden)
            op.sample_logits(step, t(1, 9), self.struct(block), x, gain, 1e-6, head)
        op.sample_draw(step, self.struct(block), self.struct(block), self.struct(24),
                       self.struct(16), 9)  # fmt: skip
        op.sample_score(step, t(2), t(2, dtype="u32"), t(2, 9), t(2, dtype="u32"))

    def _encoder(self) -> None:
        op, t, step = self.native, self.tensor, self.step
        u32 = partial(t, dtype="u32")
        row, hidden, windows = t(128), t(5, 128), u32(3)
        for dtype in TYPES:
            act = partial(t, dtype=dtype)
            op.encoder_embed(step, act(5, 128), hidden, u32(5), u32(5), t(9, 128), t(3, 128),
                             row, row, 1e-6)  # fmt: skip
            op.encoder_norm(step, act(5, 128), hidden, row, row, row, 1e-6)
            op.encoder_attention(step, act(5, 64), t(5, 192), t(192), windows, 2, 3)
            op.encoder_gelu(step, act(5, 128), hidden, row)
            op.encoder_pool(step, act(2, 256), hidden, windows)


@cache
def recorded() -> dict[str, Launch]:
    """One launch of each kernel by name; those of one name must be alike."""
    found: dict[str, Launch] = {}
    for launch in chain.from_iterable(Recorder(tiles).all() for tiles in TILES):
        if found.setdefault(launch.kernel, launch) != launch:
            raise LookupError(f"{launch.kernel} is recorded as {found[launch.kernel]} and {launch}")
    return found


# --- the table --------------------------------------------------------------------------------


@cache
def table() -> dict[str, list[Argument]]:
    """src/cpu/kernels.h: bindings by kernel, without the storages in its name."""
    text = (ROOT / "src" / "cpu" / "kernels.h").read_text()
    rows: list[list[str]] = []
    for line in re.findall(r"^//(   .*)$", text, re.MULTILINE):
        if match := re.match(r"   (\w+?)_(?:<.*>|f32|u32)\s+(\S.*)", line):
            rows.append([match[1], match[2]])
        elif rows and line.startswith(" " * 10):
            rows[-1][1] += " " + line.strip()
    return {name: list(_table_bindings(bindings)) for name, bindings in rows}


def _table_bindings(text: str) -> Iterator[Argument]:
    index = 0
    for part in re.sub(r"\([^)]*\)", "", text).split(","):
        mark, name, stored = re.fullmatch(r"\s*([*>]?)(\w+)\s*(<\w+>)?\s*", part).groups()
        access = {"": "in", "*": "inout", ">": "out"}[mark]
        for number in "0123" if name == "segments" else ("",):
            for factor in (".weight", ".scales", ".biases") if stored else ("",):
                yield Argument(f"{name}{number}{factor}", index, access)
                index += 1


# --- metal/ against both ----------------------------------------------------------------------


# Where metal/ says it shorter, because the kernel's own name says the rest.
SHORTER = {
    "moe_router": {
        "shared_router": "own",
        "shared_gate": "gate",
        "shared_up": "up",
        "shared_act": "act",
    },
    "moe_down": {"shared_down": "shared"},
}


def names_of(line: str, host: str) -> set[str]:
    """What metal/ may call a binding of the table.

    A matrix is bound as three; a kernel's only one has no name but theirs, with its number where
    there are segments.
    """
    matrix, _, factor = host.partition(".")
    known = SHORTER.get(line, {}).get(matrix, matrix)
    if not factor:
        return {known}
    number = matrix.removeprefix("segments") if matrix.startswith("segments") else "0"
    names = {known if factor == "weight" else f"{known}_{factor}"}
    is_only = sum(argument.name.endswith(f".{factor}") for argument in table()[line]) in (1, 4)
    return names | ({f"{factor}{number}"} | {factor} if is_only else set())


def line_of(kernel: str) -> str | None:
    """The table's name for a kernel: the longest that its own begins with."""
    return max((name for name in table() if kernel.startswith(f"{name}_")), key=len, default=None)


def check_arguments(kernel: str, function: str, arguments: list[Argument]) -> Iterator[str]:
    """A kernel function's buffers against the table."""
    line = line_of(kernel)
    if line is None:
        yield f"{kernel}: no line of src/cpu/kernels.h"
        return
    expected = table()[line]
    bound = [argument for argument in arguments if argument.access != "params"]
    if len(bound) != len(expected):
        yield f"{function}: {len(bound)} bindings, src/cpu/kernels.h has {len(expected)}"
        return
    for metal, host in zip(bound, expected, strict=True):
        if metal.name not in names_of(line, host.name):
            yield f"{function}: buffer {metal.index} is {metal.name}, the host's {host.name}"
        if (metal.access == "in") != (host.access == "in"):
            const = "const" if metal.access == "in" else "not const"
            yield f"{function}: {metal.name} is {const}, the host binds it as {host.access}"


def check_launches(source: str, kernels: Kernels) -> Iterator[Finding]:
    """Every kernel of a file against what the host records."""
    for function, kernel in {
        function: kernel for kernel, function in kernels.functions.items()
    }.items():
        for message in check_arguments(kernel, function, kernels.arguments[function]):
            yield Finding(source, 1, "host", message)
    for name, made in kernels.made.items():
        launch = recorded().get(name)
        if launch is None:
            yield Finding(source, 1, "host", f"{name}: src/ops never records it")
            continue
        if launch.threads != made.threads:
            threads = f"{made.threads} threads, the host launches {launch.threads}"
            yield Finding(source, 1, "host", f"{name}: {threads}")
        bound = kernels.arguments[kernels.functions[name]][:-1]
        metal = tuple(argument.access == "in" for argument in bound)
        if metal != tuple(access == "in" for access in launch.accesses):
            yield Finding(source, 1, "host", f"{name}: bindings {launch.accesses} by the host")


def missing_kernels() -> set[str]:
    """Kernels that a GPU's step asks for and metal/ lacks.

    A GPU has bf16 caches, and activations in bf16 or f16 where there are many rows; kernels of f32
    alone are the CPU device's, but for those that have no other form.
    """
    made = {name for source in kernel_files() for name in read_kernels(source).made}
    asked = {
        name
        for name in recorded()
        if not re.match(r"(?:linear_gemm|moe_grouped|attention_prefill|rope_append)", name)
        or re.search(r"_(?:bf16|q4|q8|f32)_(?:bf16|f16)(?:_[tdr]\w+)?$", name)
    }
    return {name for name in asked - made if not _NOT_MADE.search(name)}


# Caches in f32 are the CPU device's. Activations in f16 are for Macs without bf16, which run the
# models that exist: their heads have 256 dimensions. The largest tile is NVIDIA's, whose compiler
# alone sees it. The encoder's rows leave for products alone.
_NOT_MADE = re.compile(
    r"^(?:attention_\w+|rope_append)_f32_|^attention_prefill_\w+_f16_d(?:64|128)$|_t128$"
    r"|^encoder_\w+_f32$"
)
