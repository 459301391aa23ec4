"""tools/h200/slim_fatbin.py on containers that are built here, as nvcc lays them out."""

from __future__ import annotations

import importlib.util
import struct
import sys

import pytest

from bench.machine import ROOT

PTX, CUBIN = 1, 2


@pytest.fixture(scope="module")
def slim():
    path = ROOT / "tools" / "h200" / "slim_fatbin.py"
    spec = importlib.util.spec_from_file_location("slim_fatbin", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a dataclass looks its module up
    spec.loader.exec_module(module)
    return module


def entry(kind, architecture, code):
    header = struct.pack("<HHIQ", kind, 0x101, 64, len(code)).ljust(28, b"\0")
    return (header + struct.pack("<I", architecture)).ljust(64, b"\0") + code


def container(*entries):
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def test_one_architecture_stays(slim):
    wanted, other, ptx = b"9" * 96, b"8" * 80, b"p" * 40
    kept_whole = container(entry(CUBIN, 80, b"only" * 8))  # has nothing for the wanted one
    before = b"ELF..." + container(entry(CUBIN, 80, other), entry(CUBIN, 90, wanted))
    after = b"...data" + container(entry(PTX, 90, ptx), entry(CUBIN, 90, wanted)) + kept_whole
    data = bytearray(before + after)
    original = bytes(data)
    assert slim.blank_others(data, 90) == (2 * 96 + 32, 80 + 40)
    assert len(data) == len(original)
    assert data.count(wanted) == 2
    assert other not in data
    assert ptx not in data
    # Nothing but that code has changed.
    assert bytes(data) == original.replace(other, bytes(80)).replace(ptx, bytes(40))


@pytest.mark.parametrize("cut", [8, 40, 100])
def test_what_only_looks_like_a_container_is_left(slim, cut):
    whole = container(entry(CUBIN, 80, b"8" * 80), entry(CUBIN, 90, b"9" * 96))
    data = bytearray(b"xx" + whole[:cut])
    assert slim.blank_others(data, 90) == (0, 0)
    assert data == b"xx" + whole[:cut]
    data = bytearray(b"\x50\xed\x55\xba" + whole)  # a magic number by chance, just before
    assert slim.blank_others(data, 90) == (96, 80)
