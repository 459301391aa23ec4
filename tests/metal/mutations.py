"""The mutation test's machinery: plants a fault in a copy of metal/, and says what noticed it.

    python tests/metal/mutations.py [NAME ...]     all faults, or these; a table, and 1 if one lived

A fault is one replacement in one file. The kernel file that shows it is compiled for the device
"fibers" with only the kernels that its check runs, linked with the objects of an existing fiber
build into a module of its own, and the check (mutations_checks.py) runs there in a process of its
own. Needs that build: LILY_FIBERS_BUILD, or the folder that the imported lily._native stands in.
Knows no kernel.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
MODULE = "_native"
SECONDS = 120  # of one check; an unmutated one takes a few

# What a message of the device says, in the order in which they are tried.
NOTICES = [
    ("race", r"with no barrier between: a race"),
    ("divergence", r"divergence in simdgroup|threadgroup_barrier \(|is at another threadgroup"),
    ("bounds", r"(reads|writes) \d+ bytes? |outside every threadgroup array|outside its array"),
    ("launch", r" given, [\d,]+ expected"),
    ("memory", r"bytes of others; the limit is"),
    ("numbers", r"AssertionError"),
]


@dataclass(frozen=True)
class Fault:
    """One planted fault. `notice`: who should see it; several where an order decides."""

    name: str
    file: str  # of metal/
    text: str  # stands there once
    becomes: str
    check: str  # of mutations_checks.CHECKS, or "lint"
    notice: tuple[str, ...]

    def plant(self, metal: Path) -> None:
        """Change the file of this copy."""
        path = metal / self.file
        source = path.read_text()
        if (found := source.count(self.text)) != 1:
            raise LookupError(f"{self.name}: {found} places in {self.file} read {self.text!r}")
        path.write_text(source.replace(self.text, self.becomes))


@dataclass(frozen=True)
class Outcome:
    """What a check came to: "passed", "broken" (it did not run), or who noticed."""

    notice: str
    message: str

    def short(self) -> str:
        """The message on a line."""
        return " ".join(self.message.split())[:200]


def fiber_build() -> Path | None:
    """The folder of a fiber build with Ninja, or None."""
    asked = os.environ.get("LILY_FIBERS_BUILD")
    if asked:
        places = [Path(asked)]
    else:
        import lily._native as module

        places = [Path(module.__file__).resolve().parent]
    for place in places:
        if (place / "build.ninja").is_file() and (place / "fibers").is_dir():
            return place
    return None


class Workshop:
    """Builds modules with other kernels out of a fiber build's objects, and runs checks there."""

    def __init__(self, build: Path, folder: Path) -> None:
        self._build, self._folder = build, folder
        listed = subprocess.run(
            ["ninja", "-C", build, "-t", "targets", "all"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        module = re.search(rf"^({MODULE}\S*\.so):", listed, re.MULTILINE)
        if module is None:
            raise LookupError(f"{build} does not build {MODULE}")
        self._module = module[1]
        commands = subprocess.run(
            ["ninja", "-t", "commands", self._module],
            cwd=build,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        self._link = commands.splitlines()[-1]

    def run(self, check: str, source: str, kernels: Iterable[str], fault: Fault | None) -> Outcome:
        """Build and run one check, of metal/ as it is or with a fault."""
        place = self._folder / (fault.name if fault else f"plain-{check}")
        shutil.copytree(ROOT / "metal", place / "metal")
        shutil.copytree(ROOT / "tools", place / "tools", ignore=shutil.ignore_patterns("_*"))
        try:
            if fault:
                fault.plant(place / "metal")
            keep_only(place / "metal", kernels)
            self._make(place, source)
        except LookupError as error:
            return Outcome("broken", str(error))
        except subprocess.CalledProcessError as error:
            return Outcome("broken", (error.stdout + error.stderr).strip())
        return self._check(place, check)

    def _make(self, place: Path, source: str) -> None:
        def call(*command: object, **more: object) -> None:
            words = [str(word) for word in command]
            subprocess.run(words, capture_output=True, text=True, check=True, **more)

        tool, kernel_file = place / "tools" / "metal_clang.py", place / "metal" / source
        call(sys.executable, tool, "object", kernel_file, place / "k.o", "--sanitize=checks")
        package = place / "package" / "lily"
        package.mkdir(parents=True)
        for path in (ROOT / "python" / "lily").iterdir():
            if not path.name.startswith((MODULE, "__pycache__")):
                (package / path.name).symlink_to(path)
        # The other families' objects stay away: a check is of one kernel file.
        link = re.sub(r"\sfibers/\S+\.o", "", self._link)
        link = link.replace(" libnanobind", f" {place / 'k.o'} libnanobind", 1)
        link = link.replace(f" -o {self._module}", f" -o {package / self._module}", 1)
        call("sh", "-c", link, cwd=self._build)

    def _check(self, place: Path, check: str) -> Outcome:
        paths = [str(place / "package"), str(ROOT / "tests")]
        command = [sys.executable, "-m", "metal.mutations_checks", check]
        try:
            done = subprocess.run(
                command,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Outcome("hang", f"more than {SECONDS} seconds")
        finally:
            shutil.rmtree(place)
        if done.returncode == 0:
            return Outcome("passed", "")
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        return judge(lines[-1] if lines else f"ended with {done.returncode}")


def keep_only(metal: Path, kernels: Iterable[str]) -> None:
    """Have a copy of metal/ instantiate these kernels alone, so that it compiles in a second."""
    path = metal / "clang" / "fibers.h"
    text = path.read_text()
    if text.count("#define LILY_KERNEL(") != 1:
        raise LookupError("metal/clang/fibers.h does not define LILY_KERNEL once")
    text = text.replace("#define LILY_KERNEL(", "#define LILY_KEPT_KERNEL(")
    text += """
#pragma clang diagnostic ignored "-Wunused"
#define LILY_CUT_KERNEL(name, threads, ...)
#define LILY_SECOND(first, second, ...) second
#define LILY_CHOOSE(...) LILY_SECOND(__VA_ARGS__)
#define LILY_KERNEL(name, threads, ...) \\
  LILY_CHOOSE(LILY_KEEP_##name LILY_KEPT_KERNEL, LILY_CUT_KERNEL, 0)(name, threads, __VA_ARGS__)
"""
    # A kept kernel's word brings a comma, which moves LILY_KEPT_KERNEL into the second place.
    text += "".join(f"#define LILY_KEEP_{kernel} 0,\n" for kernel in kernels)
    path.write_text(text)


def judge(message: str) -> Outcome:
    """Who noticed, by the last line that a check left."""
    for notice, pattern in NOTICES:
        if re.search(pattern, message):
            return Outcome(notice, message)
    return Outcome("broken", message)


def main(names: list[str]) -> int:
    """Run faults and print who noticed them."""
    sys.path.insert(0, str(ROOT / "tests"))
    from metal.mutations_checks import CHECKS
    from metal.mutations_faults import FAULTS, run_fault, run_plain

    build = fiber_build()
    if build is None:
        raise SystemExit("no fiber build: LILY_FIBERS_BUILD names its folder")
    faults = [fault for fault in FAULTS if not names or fault.name in names]
    plain = CHECKS if not names else {fault.check for fault in faults} & CHECKS.keys()
    wrong = 0
    with TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        shop = Workshop(build, Path(folder))
        for check, outcome in zip(plain, pool.map(lambda it: run_plain(shop, it), plain)):  # noqa: B905
            wrong += outcome.notice != "passed"
            print(f"{outcome.notice:10} unmutated {check}: {outcome.short()}", flush=True)
        results = pool.map(lambda fault: run_fault(shop, fault), faults)
        for fault, outcome in zip(faults, results, strict=True):
            wrong += outcome.notice not in fault.notice
            mark = "" if outcome.notice in fault.notice else f"  EXPECTED {fault.notice}"
            print(f"{outcome.notice:10} {fault.name}{mark}: {outcome.short()}", flush=True)
    print(f"{len(faults)} faults, {wrong} not as expected")
    return wrong != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
