"""Write metal/*.metal as they are compiled where only their text is: each with its headers inside.

    python tools/metal_sources.py flatten SOURCE        one of them, to the standard output
    python tools/metal_sources.py embed TARGET SOURCE...   all of them, as a C++ file

A flattened file opens with its own name (#line), so that messages of the compiler name the file
and line of metal/. A header stands once; inside a condition it is guarded instead, for nobody knows
here which branch is taken. Knows no kernel.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

INCLUDE = re.compile(r'\s*#\s*include\s+"([^"]+)"')
OPENS, CLOSES = re.compile(r"\s*#\s*if"), re.compile(r"\s*#\s*endif")
DELIMITER = "lily-source"


def flatten(path: Path) -> str:
    """One file with its headers inside."""
    return "".join(_expand(path, set(), in_condition=False))


def _expand(path: Path, seen: set[str], *, in_condition: bool) -> list[str]:
    """Lines of a file; `seen` are the headers that stand already, for sure."""
    lines, depth = [f'#line 1 "{path.name}"\n'], 0
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if include := INCLUDE.match(line):
            header = _find(include[1], path.parent)
            lines += _include(header, seen, in_condition=in_condition or depth > 0)
            lines.append(f'#line {number + 1} "{path.name}"\n')
            continue
        depth += bool(OPENS.match(line)) - bool(CLOSES.match(line))
        lines.append("\n" if line.strip() == "#pragma once" else line + "\n")
    if depth:
        raise SystemExit(f"{path}: {depth} conditions are open at its end")
    return lines


def _find(header: str, folder: Path) -> Path:
    """A header beside its reader, or in the folder above: metal/tensor_ops reads metal/."""
    beside = folder / header
    return beside if beside.is_file() else folder.parent / header


def _include(header: Path, seen: set[str], *, in_condition: bool) -> list[str]:
    """What stands in the place of an #include."""
    if header.name in seen:
        return []
    guard = f"LILY_HAS_{header.stem.upper()}"
    if in_condition:
        inner = _expand(header, set(seen), in_condition=True)
    else:
        seen.add(header.name)
        inner = _expand(header, seen, in_condition=False)
    return [f"#ifndef {guard}\n", f"#define {guard}\n", *inner, "#endif\n"]


def embed(sources: list[Path]) -> str:
    """The C++ file that src/device/metal/sources.h declares."""
    parts = [
        "// Written by tools/metal_sources.py.\n",
        '#include "device/metal/sources.h"\n\n',
        "namespace lily::metal {\n\n",
        "std::span<const KernelSource> embedded_sources() {\n",
        "  static const KernelSource all[] = {\n",
    ]
    for path in sources:
        text = flatten(path)
        name = path.stem if path.parent.name == "metal" else f"{path.parent.name}/{path.stem}"
        parts.append(f'{{"{name}", R"{DELIMITER}({text}){DELIMITER}"}},\n')
    parts += ["  };\n", "  return all;\n", "}\n\n", "}  // namespace lily::metal\n"]
    return "".join(parts)


def main(arguments: list[str]) -> int:
    """Read the command line and do what it says."""
    match arguments:
        case ["flatten", source]:
            sys.stdout.write(flatten(Path(source)))
        case ["embed", target, *sources] if sources:
            Path(target).write_text(embed([Path(source) for source in sources]))
        case _:
            raise SystemExit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
