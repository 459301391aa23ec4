"""Builds the wheel for macOS on Apple Silicon, on Linux: ``python build_wheel.py OUT``.

The ordinary build (scikit-build-core, CMakeLists.txt) with zig as its compiler; for CI, so that a
change that breaks the Mac is seen without one. Wheels that are published are built on Macs. Needs
Python 3.12 or later with build, nanobind, scikit-build-core, ninja and ziglang.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PLATFORM = "macosx-14.0-arm64"
# The only place on PyPI that has Apple's metal-cpp: MLX ships it with its headers (Apache-2.0).
METAL_CPP_WHEEL = "mlx-metal==0.32.4"
METAL_CPP_FOLDER = "mlx/include/metal_cpp/"


def write_tools(folder: Path) -> None:
    """Commands that CMake can call by a path."""
    folder.mkdir(parents=True, exist_ok=True)
    for tool in ("c++", "ar", "ranlib"):
        command = folder / tool
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{HERE / "zig.py"}" {tool} "$@"\n')
        command.chmod(0o755)
    # The module is not stripped: its symbols are what check_wheel.py reads.
    for tool in ("strip", "none"):
        (folder / tool).write_text("#!/bin/sh\n")
        (folder / tool).chmod(0o755)


def fetch_metal_cpp(folder: Path) -> Path:
    """Apple's C++ headers of Metal; downloaded once."""
    found = folder / METAL_CPP_FOLDER
    if not found.is_dir():
        wheels = folder / "wheels"
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
                *("--platform", "macosx_14_0_arm64", "--only-binary=:all:"),
                *("--dest", str(wheels), METAL_CPP_WHEEL),
            ],
            check=True,
        )
        (wheel,) = wheels.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.startswith(METAL_CPP_FOLDER)]
            archive.extractall(folder, names)
    return found


def build(out: Path, work: Path, metal_cpp: Path) -> Path:
    """The wheel's path."""
    write_tools(work / "tools")
    defines = {
        "CMAKE_TOOLCHAIN_FILE": HERE / "toolchain.cmake",
        "LILY_CROSS_TOOLS": work / "tools",
        "LILY_METAL_CPP": metal_cpp,
        # A cross build cannot ask a Mac's Python; the stable ABI is the same everywhere.
        "Python_INCLUDE_DIR": sysconfig.get_path("include"),
    }
    settings = [f"-Ccmake.define.{name}={value}" for name, value in defines.items()]
    settings += [f"-Cbuild-dir={work / 'build'}", "-Cinstall.strip=false"]
    before = set(out.glob("*.whl"))
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(out), *settings],
        cwd=ROOT,
        env={**os.environ, "_PYTHON_HOST_PLATFORM": PLATFORM},
        check=True,
    )
    made = [path for path in out.glob("*.whl") if path not in before] or list(out.glob("*.whl"))
    return max(made, key=lambda path: path.stat().st_mtime)


def main() -> None:
    """Build, and print the wheel's path."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="folder for the wheel")
    parser.add_argument("--work", type=Path, help="folder to keep between builds")
    parser.add_argument("--metal-cpp", type=Path, help="metal-cpp's headers, if they are here")
    given = parser.parse_args()
    if sys.version_info < (3, 12):
        parser.error("needs Python 3.12 or later: the stable ABI of the module begins there")
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        work = (given.work or Path(temporary)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        metal_cpp = given.metal_cpp or fetch_metal_cpp(work)
        print(build(given.out.resolve(), work, metal_cpp.resolve()))


if __name__ == "__main__":
    main()
