"""Writes, or checks, the type stubs of the native module.

Owns python/lily/_native/*.pyi; knows nothing of what they say: nanobind derives them from the
bindings.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

STUBS = Path(__file__).resolve().parent.parent / "python" / "lily" / "_native"


def generate(into: Path) -> dict[str, str]:
    """The stubs of the installed lily._native, by file name."""
    options = ["-r", "-q", "-m", "lily._native", "-O", str(into)]
    subprocess.run([sys.executable, "-m", "nanobind.stubgen", *options], check=True)
    return {path.name: path.read_text() for path in sorted(into.rglob("*.pyi"))}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail where the stubs are out of date")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        fresh = generate(Path(folder))
    if arguments.check:
        stale = [name for name, text in fresh.items() if _stored(name) != text]
        stale += [path.name for path in STUBS.glob("*.pyi") if path.name not in fresh]
        if stale:
            print(f"out of date: {', '.join(stale)}; run: python tools/stubs.py", file=sys.stderr)
        return 1 if stale else 0
    STUBS.mkdir(exist_ok=True)
    for name, text in fresh.items():
        (STUBS / name).write_text(text)
    return 0


def _stored(name: str) -> str | None:
    path = STUBS / name
    return path.read_text() if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
