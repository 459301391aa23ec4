"""Checks a macOS wheel without a Mac: ``python check_wheel.py WHEEL [--metal]``.

What the wheel calls itself, that pip would install it there, and what its module is: architecture,
oldest system, libraries, and that nothing is undefined but what those libraries and CPython's
stable ABI have. Needs lief, nanobind and pip.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import lief
import nanobind

TAG = "cp312-abi3-macosx_14_0_arm64"
MIN_OS = [14, 0, 0]
SYSTEM = {"/usr/lib/libSystem.B.dylib", "/usr/lib/libc++.1.dylib", "/usr/lib/libobjc.A.dylib"}
FRAMEWORKS = {
    "/System/Library/Frameworks/Metal.framework/Versions/A/Metal",
    "/System/Library/Frameworks/Foundation.framework/Versions/C/Foundation",
}
# What frameworks must have, for it is not looked up weakly: known to be in every macOS from 14 on.
REQUIRED = {"_MTLCreateSystemDefaultDevice"}
# In no named library, wherever it is found: as dyld's bind information says it, and as the symbol
# table does, where symbols stay that nothing binds because what named them was dropped.
_ANYWHERE = (-2, 0)


def install(wheel: Path, folder: Path) -> Path:
    """The module, where pip puts it for a Mac."""
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"),
            *("--platform", "macosx_14_0_arm64", "--python-version", "3.12"),
            *("--only-binary=:all:", "--target", str(folder), str(wheel)),
        ],
        check=True,
    )
    (module,) = (folder / "lily").glob("_native*.so")
    return module


def cpython_symbols() -> set[str]:
    """What a Python module may leave undefined: nanobind's own list of CPython's names."""
    listed = Path(nanobind.cmake_dir()) / "darwin-ld-cpython.sym"
    words = listed.read_text().split()
    return set(words) - {"-U"}


def problems_of(module: Path, *, with_metal: bool) -> list[str]:
    """Everything about a module that is not as it must be."""
    parsed = lief.MachO.parse(str(module))
    if parsed is None or len(parsed) != 1:
        return [f"{module.name} is not a Mach-O file of one architecture"]
    binary = parsed.at(0)
    found = []
    if binary.header.cpu_type != lief.MachO.Header.CPU_TYPE.ARM64:
        found.append(f"built for {binary.header.cpu_type}, expected ARM64")
    if module.name != "_native.abi3.so":
        found.append(f"named {module.name}, expected _native.abi3.so")
    oldest = list(binary.build_version.minos) if binary.build_version else None
    if oldest != MIN_OS:
        found.append(f"runs from macOS {oldest} on, expected {MIN_OS}")
    if not binary.has_code_signature:
        found.append("has no code signature, without which Apple Silicon runs nothing")
    found += _library_problems(binary, with_metal) + _symbol_problems(binary)
    return found + _newer_than_the_oldest(binary)


def _library_problems(binary: lief.MachO.Binary, with_metal: bool) -> list[str]:
    own = {str(module.name) for module in binary.libraries
           if module.command == lief.MachO.LoadCommand.TYPE.ID_DYLIB}  # fmt: skip
    linked = {str(library.name) for library in binary.libraries} - own
    wanted = FRAMEWORKS if with_metal else set()
    found = [f"does not link {name}" for name in sorted(wanted - linked)]
    return found + [f"links {name}" for name in sorted(linked - SYSTEM - FRAMEWORKS)]


def _symbol_problems(binary: lief.MachO.Binary) -> list[str]:
    """Undefined symbols that no library was found to have, and that are not CPython's."""
    allowed = cpython_symbols()
    found, bound = [], 0
    for symbol in binary.imported_symbols:
        bound += symbol.has_binding_info
        place = symbol.binding_info if symbol.has_binding_info else symbol
        anywhere = place.library_ordinal in _ANYWHERE
        if anywhere and symbol.name not in allowed:
            found.append(f"leaves {symbol.name} undefined, which is not CPython's")
        if not anywhere and symbol.name in allowed:
            found.append(f"takes {symbol.name} from a library, expected it from the interpreter")
    if not bound:
        found.append("imports nothing: its symbols were not read")
    if "_PyInit__native" not in {symbol.name for symbol in binary.exported_symbols}:
        found.append("exports no PyInit__native, which Python calls")
    return found


def _newer_than_the_oldest(binary: lief.MachO.Binary) -> list[str]:
    """Symbols of frameworks that the oldest macOS may lack, and that would keep it from loading."""
    found = []
    for symbol in binary.imported_symbols:
        if not symbol.has_binding_info or not symbol.binding_info.has_library:
            continue
        strong = str(symbol.binding_info.library.name) in FRAMEWORKS
        strong = strong and not symbol.binding_info.weak_import
        if strong and symbol.name not in REQUIRED:
            found.append(f"needs {symbol.name} of a framework, expected a weak import")
    return found


def check(wheel: Path, *, with_metal: bool) -> list[str]:
    """Everything that is wrong with a wheel."""
    found = [] if wheel.stem.endswith(TAG) else [f"is named {wheel.name}, expected ...-{TAG}.whl"]
    with tempfile.TemporaryDirectory() as folder:
        return found + problems_of(install(wheel, Path(folder)), with_metal=with_metal)


def main() -> None:
    """Check, and exit 1 with all problems."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--metal", action="store_true", help="it must link the Metal device")
    given = parser.parse_args()
    lief.logging.disable()
    found = check(given.wheel, with_metal=given.metal)
    for problem in found:
        print(f"{given.wheel.name}: {problem}", file=sys.stderr)
    if not found:
        print(f"{given.wheel.name}: would be installed and loaded on macOS 14 and later")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
