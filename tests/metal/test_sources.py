"""The kernels as text, each with its headers inside: what a Mac without a metallib compiles.

Clang takes every one of them as it takes metal/ itself, and finds the same kernels there.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import metal_clang  # noqa: E402
import metal_sources  # noqa: E402

SOURCES = sorted((ROOT / "metal").glob("*.metal"))
TENSOR_OPS = ROOT / "metal" / "tensor_ops" / "prefill.metal"


def clang() -> str:
    """The compiler, or a loud skip."""
    try:
        return metal_clang.find_clang(None)
    except SystemExit as missing:
        pytest.skip(f"the flattened kernels were not compiled: {missing}")


def kernels(compiler: str, source: Path) -> set[str]:
    """Names of the kernels that a file defines, as the compiler sees them."""
    command = [compiler, *metal_clang.LANGUAGE, *metal_clang.fiber_flags(""), "-E", "-P"]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True, check=True)
    return set(re.findall(r"\blily_kernel_(\w+) =", done.stdout))


@pytest.mark.parametrize("source", [*SOURCES, TENSOR_OPS], ids=lambda path: path.stem)
def test_flattened_source_is_whole(tmp_path, source):
    """No header is missing or stands twice, whichever branch a compiler takes."""
    compiler = clang()
    text = metal_sources.flatten(source)
    assert text.startswith(f'#line 1 "{source.name}"\n')
    assert '#include "' not in text
    flat = tmp_path / source.name
    flat.write_text(text)
    names = kernels(compiler, flat)
    assert names == kernels(compiler, source)
    assert names
    flags = [*metal_clang.LANGUAGE, *metal_clang.fiber_flags(""), "-fsyntax-only"]
    done = subprocess.run(
        [compiler, *flags, str(flat)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_kernels_are_found_by_their_family():
    """The device looks for a kernel in the sources whose first word is the kernel's."""
    compiler = clang()
    for source in SOURCES:
        family = source.stem.split("_")[0]
        for name in kernels(compiler, source):
            assert name.split("_")[0] == family, f"{name} stands in {source.name}"


def test_tensor_ops_stand_apart():
    """A source of Metal 4 under its folder's name, with kernels that the device tells by theirs."""
    assert '{"tensor_ops/prefill", R"' in metal_sources.embed([TENSOR_OPS])
    names = kernels(clang(), TENSOR_OPS)
    assert names
    assert all(name.endswith("_tensor") for name in names)
    others = {name for source in SOURCES for name in kernels(clang(), source)}
    assert not any(name.endswith("_tensor") for name in others)


def test_messages_name_the_file_and_line(tmp_path):
    """As a user's Mac would report them."""
    compiler = clang()
    header, source = tmp_path / "part.h", tmp_path / "whole.metal"
    header.write_text("#pragma once\n\nint wrong_in_part = nothing;\n")
    source.write_text('// A file.\n#include "part.h"\nint wrong_in_whole = nothing;\n')
    flat = tmp_path / "flat.metal"
    flat.write_text(metal_sources.flatten(source))
    done = subprocess.run(
        [compiler, *metal_clang.LANGUAGE, "-fsyntax-only", str(flat)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "part.h:3:" in done.stderr
    assert "whole.metal:3:" in done.stderr
