"""Check that no code of one instruction set can be linked into another's path.

The linker keeps one copy of each inline function. Were a copy compiled for AVX-512 shared with the
baseline, an older processor would meet instructions that it does not know. So every inline function
in the kernel objects must lie in the namespace of its instruction set:

    isa_symbols.py ISA OBJECT...
"""

from __future__ import annotations

import subprocess
import sys

UNWINDING = "DW.ref."  # pointers that the compiler emits for unwinding; no code


def shared_symbols(isa: str, objects: list[str]) -> list[str]:
    """Weak symbols that are not the instruction set's own."""
    listing = subprocess.run(
        ["nm", "-C", "--defined-only", *objects], capture_output=True, text=True, check=True
    ).stdout
    found = set()
    for line in listing.splitlines():
        kind, _, symbol = line[17:].partition(" ")
        own = f"lily::cpu::{isa}::" in symbol or symbol.startswith(UNWINDING)
        if kind in ("W", "V", "w", "v", "u") and not own:
            found.add(symbol)
    return sorted(found)


def main() -> int:
    isa, *objects = sys.argv[1:]
    if not objects:
        print("no objects given", file=sys.stderr)
        return 2
    shared = shared_symbols(isa, objects)
    for symbol in shared[:10]:
        print(f"{isa}: {symbol} may be linked into another path", file=sys.stderr)
    if len(shared) > 10:
        print(f"{isa}: and {len(shared) - 10} more", file=sys.stderr)
    return 1 if shared else 0


if __name__ == "__main__":
    sys.exit(main())
