"""The words that stand between CMake and zig when a Mac's wheel is built on Linux."""

from __future__ import annotations

import importlib.util
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools" / "cross_macos" / "zig.py"


def compiler(*words: str) -> list[str]:
    """What zig is told."""
    spec = importlib.util.spec_from_file_location("zig", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.compiler(list(words))


def test_the_target_is_the_oldest_system():
    """The same as in the wheel's tag."""
    told = compiler("-O3", "-c", "a.cpp")
    assert told[:3] == ["c++", "-target", "aarch64-macos.14.0"]
    assert told[-3:] == ["-O3", "-c", "a.cpp"]


def test_a_module_is_linked_as_a_library():
    """And only CPython's list of symbols becomes a look-up at load time."""
    told = compiler("-bundle", "-Wl,-headerpad_max_install_names", "-Wl,@cpython.sym", "a.o")
    assert "-shared" in told
    assert "-Wl,-undefined,dynamic_lookup" in told
    assert not {"-bundle", "-Wl,-headerpad_max_install_names", "-Wl,@cpython.sym"} & set(told)
    assert "-Wl,-undefined,dynamic_lookup" not in compiler("-shared", "a.o")
