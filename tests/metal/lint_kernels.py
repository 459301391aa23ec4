"""The lint of kernels seen from outside: what metal/ declares against what src/ops records.

A kernel's arguments come from its text, after the preprocessor: names, [[buffer(n)]], const or not.
Its threads and threadgroup memory come from what clang makes of it, for both may be sums of
template arguments. The host's side is lint_host.py. Knows no kernel by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from metal.lint import Finding, clang

MAX_THREADS, LANES = 1024, 32
MAX_THREADGROUP_BYTES = 32 << 10
# Kernels that know the lanes of matrix units run on NVIDIA GPUs alone (src/ops/tiles.cpp).
MAX_LANES_BYTES = 48 << 10

# Metal's words stay what they are, and kernels are listed instead of made.
LISTING = """#include <metal_stdlib>
#undef device
#undef threadgroup
#undef thread
#undef constant
#undef kernel
#undef LILY_KERNEL
#undef LILY_EARLY_KERNEL
#undef LILY_BRIDGE_KERNEL
#undef LILY_CROWDED_KERNEL
#define LILY_KERNEL(name, threads, ...) @@ #name | __VA_ARGS__ @@
#define LILY_EARLY_KERNEL(name, threads, groups, ...) @@ #name | __VA_ARGS__ @@
#define LILY_BRIDGE_KERNEL(name, threads, groups, ...) @@ #name | __VA_ARGS__ @@
#define LILY_CROWDED_KERNEL(name, threads, groups, ...) @@ #name | __VA_ARGS__ @@
"""


@dataclass(frozen=True)
class Argument:
    """One buffer of a kernel. access: "in" (device const), "out" (device), or "params"."""

    name: str
    index: int
    access: str


@dataclass(frozen=True)
class Made:
    """What clang made of an instantiation."""

    threads: int
    bindings: int
    threadgroup_bytes: int


@dataclass(frozen=True)
class Kernels:
    """All of one .metal file: arguments by function, functions by kernel, and what they came to."""

    arguments: dict[str, list[Argument]]
    functions: dict[str, str]
    made: dict[str, Made]
    bodies: dict[str, str]


@cache
def read_kernels(source: Path) -> Kernels:
    """Read one .metal file."""
    text = clang("-E", "-P", "-include", "/dev/stdin", str(source), stdin=LISTING).stdout
    listed = dict(re.findall(r'@@ #?"?(\w+)"? \| (\w+)', text))
    arguments, bodies = {}, {}
    for match in re.finditer(r"\[\[kernel\]\]\s*void\s+(\w+)\s*\(", text):
        end = _closing(text, match.end() - 1, "()")
        begin_body = text.find("{", end)
        arguments[match[1]] = list(_arguments(text[match.end() : end]))
        bodies[match[1]] = text[begin_body : _closing(text, begin_body, "{}")]
    return Kernels(arguments, listed, _made(source), bodies)


def _closing(text: str, at: int, brackets: str) -> int:
    depth = 0
    for place in range(at, len(text)):
        depth += (text[place] == brackets[0]) - (text[place] == brackets[1])
        if depth == 0:
            return place
    return len(text)


def _arguments(text: str) -> Iterator[Argument]:
    for part in re.split(r",(?![^<(\[]*[>)\]])", text):
        match = re.search(r"(.*?)([*&])\s*(\w+)\s*\[\[buffer\(([\d +]+)\)\]\]", part, re.DOTALL)
        if match is None:
            continue
        index = sum(int(term) for term in match[4].split("+"))
        words = match[1].split()
        access = "in" if "const" in words else "out"
        if words[0] == "constant" and match[2] == "&":
            access = "params"
        elif words[0] != "device" or match[2] != "*":
            access = f"neither `device T*` nor `constant T&`: {' '.join(words)} {match[2]}"
        yield Argument(match[3], index, access)


def _made(source: Path) -> dict[str, Made]:
    """Each kernel's entry for the fiber device, and the arrays of all that it calls."""
    shown = ["-O0", "-Xclang", "-disable-llvm-passes", "-S", "-emit-llvm", "-o", "-"]
    code = clang(*shown, str(source)).stdout
    arrays: dict[str, dict[str, int]] = {}
    calls: dict[str, set[str]] = {}
    for name, body in re.findall(
        r"^define [^\n]*?@([\w.$]+)\([^\n]*\{\n(.*?)^\}", code, re.MULTILINE | re.DOTALL
    ):
        calls[name] = set(re.findall(r"\bcall [^\n@]*@([\w.$]+)\(", body))
        pattern = r"@lily_fibers_array\([^\n]*ptr noundef @(\S+), i32 noundef (\d+)\)"
        arrays[name] = {array: int(size) for array, size in re.findall(pattern, body)}
        if len(arrays[name]) < body.count("@lily_fibers_array("):
            raise LookupError(f"{source.name}: {name}: an array's size is no constant")
    names = dict(re.findall(r'^@(\.str[.\d]*) = [^\n]*c"(\w+)\\00"', code, re.MULTILINE))
    made = {}
    entry = r"ptr @(\.str[.\d]*), ptr @([\w.$]+), i32 (\d+), i32 (\d+), i32 \d+, i32 \d+, "
    entry += r'ptr @\.str[.\d]* \}, section "lily_kernels"'
    for text, run, threads, bindings in re.findall(entry, code):
        reached, open_ = set(), [run]
        while open_:
            at = open_.pop()
            if at not in reached:
                reached.add(at)
                open_ += calls.get(at, ())
        found = {name: size for at in reached for name, size in arrays.get(at, {}).items()}
        size = sum(-(-each // 16) * 16 for each in found.values())
        made[names[text]] = Made(int(threads), int(bindings), size)
    return made


# --- rules that need no host ------------------------------------------------------------------


def check_kernels(source: Path) -> list[Finding]:
    """Arguments, sizes, and fences of one .metal file."""
    kernels = read_kernels(source)
    found: list[Finding] = []

    def add(rule: str, message: str) -> None:
        found.append(Finding(source.name, 1, rule, message))

    for function, arguments in kernels.arguments.items():
        indices = [argument.index for argument in arguments]
        if indices != list(range(len(indices))):
            add("buffers", f"{function}: [[buffer(n)]] are {indices}, expected 0, 1, 2, ...")
        accesses = [argument.access for argument in arguments]
        if accesses[-1:] != ["params"] or "params" in accesses[:-1]:
            add("buffers", f"{function}: the last buffer, and no other, is `constant Params& p`")
        for argument in arguments:
            if argument.access not in ("in", "out", "params"):
                add("buffers", f"{function}: {argument.name} is {argument.access}")
        if lacks_fence(kernels.bodies[function], arguments):
            add("fence", f"{function}: what threads wrote to device memory is read after a barrier "
                "without mem_device")  # fmt: skip
    for name, made in kernels.made.items():
        if not 0 < made.threads <= MAX_THREADS or made.threads % LANES:
            add("threads", f"{name}: {made.threads} threads, expected whole simdgroups up to 1,024")
        most = MAX_LANES_BYTES if "_lanes" in name else MAX_THREADGROUP_BYTES
        if made.threadgroup_bytes > most:
            size = f"{made.threadgroup_bytes:,} bytes of threadgroup memory"
            add("threadgroup memory", f"{name}: {size}, expected up to {most:,}")
        if made.bindings != len(kernels.arguments[kernels.functions[name]]) - 1:
            add("buffers", f"{name}: {made.bindings} pointers without [[buffer(n)]]")
    return found


def lacks_fence(body: str, arguments: list[Argument]) -> bool:
    """Whether a kernel writes a device array, and hands it on to be read without a fence between.

    Only the pattern of a cache that is written first and attended to later: `name[...] = ` above a
    barrier, `f(name + ...)` below it.
    """
    for argument in arguments:
        if argument.access != "out":
            continue
        written = re.search(rf"\b{argument.name}\[[^;]*?\] = ", body)
        read = written and re.search(rf"[(,]\s*{argument.name} \+[^;]*\);", body[written.end() :])
        if written and read:
            between = body[written.end() : written.end() + read.start()]
            if "mem_device" not in between:
                return True
    return False
