"""The machinery that shows who notices a fault of the Metal device's host code.

    python tests/metal/host_faults.py [NAME ...]     all faults, or these; 1 if one was not noticed

A fault is one replacement in one file of src/device/metal or src/ops. The file is compiled as the
build compiles it, put before the library when the test program `metal_tests` is linked anew, and
the named tests of that program must fail with words that name the fault. Needs a build with
LILY_METAL and LILY_NATIVE_TESTS: LILY_METAL_BUILD, or the folder that the imported lily._native
stands in.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

if __package__ is None or __package__ == "":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from metal.host_fault_list import FAULTS, Fault

ROOT = Path(__file__).resolve().parents[2]
DEVICE, OPS = ROOT / "src" / "device" / "metal", ROOT / "src" / "ops"
SECONDS = 60  # of the tests of one fault


def metal_build() -> Path | None:
    """The folder of a build with the simulated Metal device and its tests, or None."""
    asked = os.environ.get("LILY_METAL_BUILD")
    if asked:
        places = [Path(asked)]
    else:
        import lily._native as module

        places = [Path(module.__file__).resolve().parent]
    for place in places:
        if (place / "tests" / "metal" / "host" / "metal_tests").is_file():
            return place.resolve()
    return None


class Workshop:
    """Compiles files with faults, and links and runs the tests with them."""

    def __init__(self, build: Path, folder: Path) -> None:
        self._build, self._folder = build, folder
        commands = json.loads((build / "compile_commands.json").read_text())
        self._compile = {
            Path(entry["file"]).name: entry
            for entry in commands
            if Path(entry["file"]).parent in (DEVICE, OPS)
        }
        ninja = subprocess.run(
            ["ninja", "-t", "commands", "-s", "tests/metal/host/metal_tests"],
            cwd=build,
            capture_output=True,
            text=True,
            check=True,
        )
        self._link = ninja.stdout.strip().splitlines()[-1]

    def run(self, fault: Fault) -> str:
        """What the tests print with the fault; "passed" where they pass."""
        place = self._folder / fault.name.replace(" ", "-")
        place.mkdir()
        objects = [self._compile_fault(fault, place)]
        program = place / "metal_tests"
        link = self._link.replace("liblily_engine.a", f"{' '.join(objects)} liblily_engine.a", 1)
        link = re.sub(r"-o \S*metal_tests\b", f"-o {program}", link)
        self._call(["sh", "-c", link], self._build)
        texts = [self._test(program, name) for name in fault.tests.split("|")]
        return "passed" if all(text == "passed" for text in texts) else "\n".join(texts)

    def _compile_fault(self, fault: Fault, place: Path) -> str:
        """The object of the changed file; of commands.cpp, where a header is changed."""
        folder = DEVICE if (DEVICE / fault.file).is_file() else OPS
        source = (folder / fault.file).read_text()
        if (found := source.count(fault.text)) != 1:
            raise LookupError(f"{fault.name}: {found} places in {fault.file} are {fault.text!r}")
        entry = self._compile[Path(fault.file).with_suffix(".cpp").name]
        changed = source.replace(fault.text, fault.becomes)
        if fault.file.endswith(".h"):
            # Only inline functions of the header are changed; metal_device.cpp is who calls them.
            entry = self._compile["metal_device.cpp"]
            folder = place / "device" / "metal"
            folder.mkdir(parents=True)
            (folder / fault.file).write_text(changed)
            changed = (DEVICE / "metal_device.cpp").read_text()
        (place / "changed.cpp").write_text(changed)
        words = shlex.split(entry["command"])
        if words[0].endswith("ccache"):
            words = words[1:]
        at = words.index("-o")
        words[at + 1] = str(place / "changed.o")
        words[words.index(entry["file"])] = str(place / "changed.cpp")
        # The order of functions in a file is no matter for this; speed is.
        self._call([words[0], f"-I{place}", *words[1:], "-O0"], Path(entry["directory"]))
        return str(place / "changed.o")

    @staticmethod
    def _call(command: list[str], folder: Path) -> None:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])

    @staticmethod
    def _test(program: Path, name: str) -> str:
        try:
            done = subprocess.run(
                [program, name], capture_output=True, text=True, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return "the tests died: they did not end"
        if done.returncode == 0:
            return "passed"
        died = "the tests died\n" if done.returncode < 0 else ""
        return died + done.stdout + done.stderr


def main(names: list[str]) -> int:
    """Run faults and print whether they were noticed."""
    build = metal_build()
    if build is None:
        raise SystemExit("no build of the Metal device: LILY_METAL_BUILD names its folder")
    faults = [fault for fault in FAULTS if not names or fault.name in names]
    wrong = 0
    with TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        shop = Workshop(build, Path(folder))
        for fault, text in zip(faults, pool.map(shop.run, faults), strict=True):
            ok = re.search(fault.says, text) is not None
            wrong += not ok
            print(f"{'noticed' if ok else 'MISSED '} {fault.name}", flush=True)
            if not ok:
                print(text[-1500:])
    print(f"{len(faults)} faults, {wrong} not noticed")
    return wrong != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
