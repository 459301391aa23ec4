"""Stands in for the compiler of macOS: ``python zig.py c++ ARGUMENTS``.

Passes what CMake says to zig for Apple Silicon, less the linker's words that zig does not know.
CPython's symbols are left to be found when the module is loaded, as on a Mac; that there are no
others is for check_wheel.py to see.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

TARGET = "aarch64-macos.14.0"
_SDK = Path(__file__).resolve().parent / "sdk"
_UNKNOWN = (
    "-Wl,-x", "-Wl,-S", "-Wl,-dead_strip", "-Wl,-headerpad_max_install_names",
    "-Wl,-search_paths_first",
)  # fmt: skip


def compiler(arguments: list[str]) -> list[str]:
    """The arguments of zig c++."""
    places = [f"-isystem{_SDK / 'include'}", f"-F{_SDK / 'frameworks'}", f"-L{_SDK / 'lib'}"]
    kept: list[str] = []
    for word in arguments:
        if word == "-bundle":  # zig writes no bundles; Python loads a library as well
            kept.append("-shared")
        elif word.startswith("-Wl,@"):  # nanobind's list of CPython's symbols
            kept.append("-Wl,-undefined,dynamic_lookup")
        elif word not in _UNKNOWN:
            kept.append(word)
    # zig turns the sanitizer for undefined behaviour on where nobody optimises.
    return ["c++", "-target", TARGET, "-fno-sanitize=undefined", *places, *kept]


def main() -> None:
    """Become zig."""
    tool, *arguments = sys.argv[1:]
    words = compiler(arguments) if tool == "c++" else [tool, *arguments]
    os.execv(sys.executable, [sys.executable, "-m", "ziglang", *words])


if __name__ == "__main__":
    main()
