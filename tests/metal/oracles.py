"""What Metal's API is, by two sources that do not know each other, and what the library uses of it.

The one is Apple's metal-cpp, the headers that the library is compiled with. The other is PyObjC's
framework-Metal: its wheel for macOS lists the values of enumerations and describes methods, and its
extension module holds protocols of Metal as Objective-C's compiler wrote them there. It is only
read here; nothing of it runs.
"""

from __future__ import annotations

import re
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

ARM64 = 0x100000C
FAT = 0xCAFEBABE
SEGMENT = 0x19
POINTER = 0x0000000FFFFFFFFF  # what is an address in a pointer that the loader would fix


# --- what the library uses ----------------------------------------------------------------------


def used_selectors(objects: list[Path]) -> set[str]:
    """Names of metal-cpp's selector variables that object files refer to."""
    listed = subprocess.run(
        ["nm", "-C", "--undefined-only", *map(str, objects)],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(re.findall(r"(?:MTL|NS)::Private::Selector::s_k(\w+)", listed.stdout))


def used_constants(sources: list[Path], known: dict[str, int]) -> set[str]:
    """Names of enumerators, with their prefix, that C++ files mention."""
    names: set[str] = set()
    for path in sources:
        found = re.findall(r"\b(MTL|NS)::([A-Z]\w+)", path.read_text())
        names.update(space + name for space, name in found)
    return names & known.keys()


# --- metal-cpp ----------------------------------------------------------------------------------


def selectors_of_metal_cpp(headers: Path) -> dict[str, str]:
    """Selectors by the name of their variable."""
    found: dict[str, str] = {}
    for path in (*headers.glob("Metal/*.hpp"), *headers.glob("Foundation/*.hpp")):
        pairs = re.findall(
            r'_(?:MTL|NS)_PRIVATE_DEF_SEL\(\s*(\w+),\s*"([^"]+)"\s*\)', path.read_text()
        )
        found.update(pairs)
    return found


def constants_of_metal_cpp(headers: Path) -> dict[str, int]:
    """Values of enumerators by Objective-C's name."""
    values: dict[str, int] = {}
    block = re.compile(r"_(MTL|NS)_(?:ENUM|OPTIONS)\([^)]*\)\s*\{([^}]*)\}")
    for path in (*headers.glob("Metal/MTL[!4]*.hpp"), *headers.glob("Foundation/NS*.hpp")):
        for space, body in block.findall(path.read_text()):
            for name, text in re.findall(r"(\w+)\s*=\s*([^,\n]+)", body):
                try:
                    values[space + name] = _number(text)
                except ValueError:
                    continue  # made of others; none of those is used
    return values


def _number(text: str) -> int:
    """A literal, or one shifted, as headers write them."""
    text = re.sub(r"[uUlL]+\b", "", text).strip().strip("()")
    base, _, shift = text.partition("<<")
    return int(base.strip(), 0) << int(shift.strip() or "0", 0)


# --- PyObjC -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PyObjC:
    """What its wheel says."""

    constants: dict[str, int]
    protocols: dict[str, set[str]]  # selectors, of those that its module holds
    described: set[str]  # selectors whose types its metadata describes

    def selectors(self) -> set[str]:
        """All that it knows."""
        return self.described.union(*self.protocols.values())


def read_pyobjc(wheel: Path) -> PyObjC:
    """Read a macOS wheel of pyobjc-framework-Metal."""
    with ZipFile(wheel) as files:
        text = files.read("Metal/_metadata.py").decode()
        listed = re.search(r'^enums = """(.*)"""$', text, re.MULTILINE)
        assert listed is not None, "the wheel's metadata lists no enumerations"
        constants = {
            name: int(value) for name, value in re.findall(r"\$(\w+)@(-?\d+)(?=\$)", listed[1])
        }
        protocols: dict[str, set[str]] = {}
        for name in files.namelist():
            if re.search(r"Metal/_\w+\.(cpython-\w+-darwin|abi3)\.so$", name):
                for protocol, selectors in MachO(files.read(name)).protocols():
                    protocols.setdefault(protocol, set()).update(selectors)
    described = set(re.findall(r'\br\(\s*b"\w+",\s*b"([\w:]+)"', text))
    return PyObjC(constants, protocols, described)


class MachO:
    """The arm64 half of a library for macOS, as far as protocols of Objective-C need it."""

    def __init__(self, data: bytes) -> None:
        self._data = self._slice(data)
        self._segments: list[tuple[int, int, int]] = []  # address, bytes, offset in the file
        self._sections: dict[str, tuple[int, int]] = {}  # address, bytes
        at = 32
        for _ in range(self._numbers("<I", 16)[0]):
            command, size = self._numbers("<II", at)
            if command == SEGMENT:
                self._read_segment(at)
            at += size

    def protocols(self) -> Iterator[tuple[str, list[str]]]:
        """Names and selectors: of instances and of the class, required and optional."""
        begin, size = self._sections.get("__objc_protolist", (0, 0))
        for entry in range(begin, begin + size, 8):
            protocol = self._pointer(entry)
            lists = [self._pointer(protocol + 24 + 8 * kind) for kind in range(4)]
            found = [selector for each in lists if each for selector in self._methods(each)]
            yield self._text(self._pointer(protocol + 8)), found

    def _methods(self, at: int) -> Iterator[str]:
        flags, count = self._numbers("<II", self._offset(at))
        for index in range(count):
            if flags & 0x80000000:  # entries are relative, of 12 bytes
                entry = at + 8 + 12 * index
                (distance,) = self._numbers("<i", self._offset(entry))
                yield self._text(self._pointer(entry + distance))
            else:
                yield self._text(self._pointer(at + 8 + 24 * index))

    @staticmethod
    def _slice(data: bytes) -> bytes:
        magic, count = struct.unpack(">II", data[:8])
        for index in range(count if magic == FAT else 0):
            cpu, _, offset, size, _ = struct.unpack_from(">5I", data, 8 + 20 * index)
            if cpu == ARM64:
                return data[offset : offset + size]
        return data

    def _read_segment(self, at: int) -> None:
        address, size, offset, _ = self._numbers("<4Q", at + 24)
        self._segments.append((address, size, offset))
        for index in range(self._numbers("<I", at + 64)[0]):
            section = at + 72 + 80 * index
            name = self._data[section : section + 16].rstrip(b"\0").decode()
            self._sections[name] = self._numbers("<QQ", section + 32)

    def _numbers(self, form: str, at: int) -> tuple[int, ...]:
        return struct.unpack_from(form, self._data, at)

    def _offset(self, address: int) -> int:
        for begin, size, offset in self._segments:
            if begin <= address < begin + size:
                return address - begin + offset
        raise LookupError(f"address {address:#x} is in no segment")

    def _pointer(self, address: int) -> int:
        return self._numbers("<Q", self._offset(address))[0] & POINTER

    def _text(self, address: int) -> str:
        begin = self._offset(address)
        return self._data[begin : self._data.index(b"\0", begin)].decode()
