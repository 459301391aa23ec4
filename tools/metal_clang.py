"""Compile metal/*.metal with clang: check them, or make fiber objects or PTX of them.

    python tools/metal_clang.py check [FILES]          all errors of both targets, nothing written
    python tools/metal_clang.py object IN OUT          for src/device/fibers (CMake: LILY_FIBERS)
    python tools/metal_clang.py ptx IN OUT [--arch sm_90]                    (CMake: LILY_PTX)

This file owns the command lines that make MSL of clang's "C++ for OpenCL", and what PTX must look
like. It knows no kernel. Needs clang 22; older ones lack parts of the language mode.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MIN_CLANG = 22

LANGUAGE = [
    *("-x", "clcpp", "-cl-std=CLC++2021", "-cl-no-stdinc"),
    # bfloat's neighbour half, and the function pointers by which kernels are registered.
    *("-Xclang", "-cl-ext=-__opencl_c_pipes,-__opencl_c_device_enqueue,+cl_khr_fp16,"
      "+__cl_clang_function_pointers,+__opencl_c_program_scope_global_variables"),
    *("-I", str(ROOT / "metal" / "clang"), "-I", str(ROOT / "metal")),
    *("-ffp-contract=fast", "-Wall", "-Wextra", "-Werror"),
    # [[buffer(0)]] and its like; and LILY_PLACE gives every kernel more than it needs.
    *("-Wno-unknown-attributes", "-Wno-unused-parameter"),
]  # fmt: skip


ENTRY = re.compile(
    r"(?P<head>^\.visible \.entry (?P<name>\w+)\([^)]*\)[^\n]*\n)(?P<body>\{.*?^\})",
    re.MULTILINE | re.DOTALL,
)
BOUNDS = re.compile(r"// threads (\d+) groups (\d+)")
SHARED = re.compile(r"^(?:\.weak |\.visible )?\.global (.*lily_shared_memory)", re.MULTILINE)
REFUSED = {
    r"^\s*\.local\b|\b(?:ld|st)\.local\b": "local memory (an array that is indexed at run time?)",
    r"^\.extern\b": "an unresolved function",
    r"\.func\b|\bcall\b": "a function that was not inlined",
    r"^(?:\.\w+ )?\.(?:const|global)\b": "a variable at program scope (only scalars may be)",
}


def ptx_flags(arch: str) -> list[str]:
    """Target NVIDIA; PTX 8.0 is what drivers since CUDA 12.0 take."""
    features = [word for feature in ("-ptx88", "+ptx80") for word in feature_flag(feature)]
    return [
        *("-target", "nvptx64-nvidia-cuda", "-Xclang", "-target-cpu", "-Xclang", arch),
        *features,
        # Nothing may stay a call: arrays that a function takes by reference would be in memory.
        *("-O3", "-mllvm", "-inline-threshold=1000000"),
        # Divisions within two units in the last place: exact ones take branches.
        *("-mllvm", "-nvptx-prec-divf32=1"),
    ]


def feature_flag(feature: str) -> list[str]:
    """One LLVM target feature, handed past clang's driver."""
    return ["-Xclang", "-target-feature", "-Xclang", feature]


def fiber_flags(sanitize: str) -> list[str]:
    """Target this machine; `sanitize` as for -fsanitize=, or "checks" for the device's own."""
    flags = [
        *("-O2", "-g1", "-fPIC", "-fno-math-errno", "-fno-omit-frame-pointer"),
        # The checks see accesses of up to 16 bytes.
        *("-march=native", "-mprefer-vector-width=128"),
        # A frame larger than its stack meets the guard page instead of stepping over it.
        "-fstack-clash-protection",
        # Arrays that a function takes by reference stay in registers, where nothing is checked.
        *("-mllvm", "-inline-threshold=2000"),
    ]
    # Function types differ in address spaces only; and a kernel may add to the null pointer of an
    # empty binding, as long as it does not read there, which the runner says better.
    allowed = "-fno-sanitize=function,pointer-overflow,null"
    if sanitize == "checks":
        # The thread sanitizer's calls at every access, which the runner answers (kernel_calls.cpp),
        # and traps for undefined behaviour, each with its own line, which it catches (faults.cpp).
        flags += ["-fsanitize=thread,undefined", "-fsanitize-trap=undefined"]
        flags += ["-fno-sanitize-merge", "-mllvm", "-tsan-instrument-func-entry-exit=0", allowed]
    elif sanitize:
        flags += [f"-fsanitize={sanitize}", "-fno-sanitize-recover=all", allowed]
    return flags


def find_clang(asked: str | None) -> str:
    """Return a clang of at least MIN_CLANG, or say what is missing."""
    for name in [asked] if asked else [f"clang-{MIN_CLANG}", "clang"]:
        path = shutil.which(name)
        if not path:
            continue
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
        version = re.search(r"clang version (\d+)", answer.stdout)
        if version and int(version[1]) >= MIN_CLANG:
            return path
    raise SystemExit(f"{asked or 'clang'}: expected clang {MIN_CLANG} or newer on the PATH")


def compile_file(clang: str, source: Path, target: Path, flags: list[str]) -> None:
    """Run clang; leave on errors, which clang shows."""
    command = [clang, *LANGUAGE, *flags, str(source), "-o", str(target)]
    if subprocess.run(command, check=False).returncode:
        raise SystemExit(1)


def with_bounds(entry: re.Match[str]) -> str:
    """An entry with its threads, and the groups that must fit on a multiprocessor."""
    found = BOUNDS.search(entry["body"])
    if not found:
        raise SystemExit(f"{entry['name']}: no comment says how many threads it has")
    threads, groups = int(found[1]), int(found[2])
    # A large group leaves room for one of the next kernel's, which may begin beside it.
    is_large = groups == 1 and 256 < threads <= 512
    room = ".maxnreg 128" if is_large else f".minnctapersm {groups}"
    return f"{entry['head']}.maxntid {threads}, 1, 1\n{room}\n{entry['body']}"


def finish_ptx(text: str, name: str) -> str:
    """Move threadgroup arrays into shared memory, state launch bounds, refuse what must not be."""
    text = ENTRY.sub(with_bounds, SHARED.sub(r".shared \1", text))
    for pattern, what in REFUSED.items():
        for line in text.splitlines():
            if re.search(pattern, line):
                raise SystemExit(f"{name}: {what}: {line.strip()}")
    return text


def make_ptx(clang: str, source: Path, target: Path, arch: str) -> None:
    """Write one family's PTX, and let ptxas judge it where it is there."""
    raw = target.with_suffix(".raw.ptx")
    compile_file(clang, source, raw, [*ptx_flags(arch), "-S"])
    target.write_text(finish_ptx(raw.read_text(), str(source)))
    raw.unlink()
    if ptxas := shutil.which("ptxas"):
        command = [ptxas, f"-arch={arch}", "-v", str(target), "-o", "/dev/null"]
        report = subprocess.run(command, capture_output=True, text=True, check=False)
        if report.returncode:
            raise SystemExit(report.stdout + report.stderr)
        target.with_suffix(".ptxas").write_text(report.stdout + report.stderr)


def check(clang: str, sources: list[Path]) -> int:
    """Check all files for both targets; the number of failures."""
    failures = 0
    for source in sources:
        for name, flags in (("fibers", fiber_flags("")), ("nvidia", ptx_flags("sm_80"))):
            command = [clang, *LANGUAGE, *flags, "-fsyntax-only", str(source)]
            ok = subprocess.run(command, check=False).returncode == 0
            print(f"{'ok  ' if ok else 'FAIL'} {name} {source}", flush=True)
            failures += not ok
    return failures


def main() -> int:
    """Read the command line and do what it says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clang", help="the compiler; otherwise clang-22 or clang on the PATH")
    actions = parser.add_subparsers(dest="action", required=True)
    checks = actions.add_parser("check")
    checks.add_argument("files", nargs="*", type=Path)
    for name in ("object", "ptx"):
        action = actions.add_parser(name)
        action.add_argument("source", type=Path)
        action.add_argument("target", type=Path)
    actions.choices["object"].add_argument("--sanitize", default="")
    actions.choices["ptx"].add_argument("--arch", default="sm_80")
    options = parser.parse_args()
    clang = find_clang(options.clang)
    if options.action == "check":
        return check(clang, options.files or sorted((ROOT / "metal").glob("*.metal")))
    if options.action == "object":
        target = options.target
        deps = ["-MD", "-MT", str(target), "-MF", f"{target}.d"]
        compile_file(clang, options.source, target, [*fiber_flags(options.sanitize), *deps, "-c"])
    else:
        make_ptx(clang, options.source, options.target, options.arch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
