"""Blanks the device code of all GPU architectures but one in a library that nvcc has built.

  python tools/h200/slim_fatbin.py libmlx.so 90

Nothing moves, so that the file stays what its loader expects, but a compressor takes what is blank
to nothing. A container that holds no machine code for that architecture is left as it is. Layout of
containers and entries: NVIDIA's fatbinary_section.h, and what `cuobjdump --list-elf` shows.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_MAGIC = struct.pack("<I", 0xBA55ED50)
_CONTAINER = struct.Struct("<4sHHQ")  # magic, version, bytes of this header, bytes of the entries
_ENTRY = struct.Struct("<HHIQ")  # kind, version, bytes of this header, bytes of the code
_ARCHITECTURE_AT = 28  # in an entry's header
_MACHINE_CODE = 2  # a kind; 1 is PTX


@dataclass(frozen=True)
class Entry:
    """One piece of device code, and where it lies in the file."""

    kind: int
    architecture: int
    begin: int
    end: int


def containers(data: bytes | bytearray) -> Iterator[list[Entry]]:
    """The entries of each container; what only looks like one is passed over."""
    at = data.find(_MAGIC)
    while at >= 0:
        found = _entries(data, at)
        if found:
            yield found
        at = data.find(_MAGIC, found[-1].end if found else at + len(_MAGIC))


def _entries(data: bytes | bytearray, at: int) -> list[Entry]:
    if at + _CONTAINER.size > len(data):
        return []
    _, _, header_bytes, entries_bytes = _CONTAINER.unpack_from(data, at)
    end = at + header_bytes + entries_bytes
    if header_bytes != _CONTAINER.size or end > len(data):
        return []
    found = []
    at += header_bytes
    while at < end:
        if at + _ARCHITECTURE_AT + 4 > end:
            return []
        kind, _, header_bytes, code_bytes = _ENTRY.unpack_from(data, at)
        (architecture,) = struct.unpack_from("<I", data, at + _ARCHITECTURE_AT)
        code = at + header_bytes
        if header_bytes <= _ARCHITECTURE_AT or code + code_bytes > end:
            return []
        found.append(Entry(kind, architecture, code, code + code_bytes))
        at = code + code_bytes
    return found


def blank_others(data: bytearray, architecture: int) -> tuple[int, int]:
    """Blank in place; (bytes kept, bytes blanked) of device code."""
    kept = blanked = 0
    for entries in containers(data):
        wanted = [e for e in entries if (e.kind, e.architecture) == (_MACHINE_CODE, architecture)]
        for entry in entries:
            size = entry.end - entry.begin
            if wanted and entry not in wanted:
                data[entry.begin : entry.end] = bytes(size)
                blanked += size
            else:
                kept += size
    return kept, blanked


def main() -> int:
    """Change the file in place, and say what was done; exit 1 where nothing was found."""
    path, architecture = Path(sys.argv[1]), int(sys.argv[2])
    data = bytearray(path.read_bytes())
    kept, blanked = blank_others(data, architecture)
    print(f"{path.name}: device code of {kept:,} bytes kept, {blanked:,} of {len(data):,} blanked")
    if not blanked:
        return 1
    path.write_bytes(data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
