"""Numbers and formats in words for people, the same in every place that shows them.

This file owns phrasing only; it imports nothing of Lily.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any


def count(value: int) -> str:
    """A count, short.

    Example:
        >>> count(20_100_000), count(35_000_000_000), count(950)
        ('20.1 M', '35.0 B', '950')
    """
    for size, unit in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return str(value)


def size(num_bytes: int) -> str:
    """A number of bytes, in powers of 1,000 as disks and memory makers count.

    Example:
        >>> size(11_799_722)
        '11.8 MB'
    """
    for unit_bytes, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if num_bytes >= unit_bytes:
            return f"{num_bytes / unit_bytes:.1f} {unit}"
    return f"{num_bytes} B"


def storage(name: str) -> str:
    """A storage format of native code, for people.

    Example:
        >>> storage("q4"), storage("bf16")
        ('4-bit', 'bf16')
    """
    return f"{name[1:]}-bit" if name[:1] == "q" and name[1:].isdigit() else name


def main_format(formats: Mapping[str, int]) -> str:
    """The storage format that holds most bytes."""
    return storage(max(formats, key=lambda name: formats[name])) if formats else "unknown"


def short_name(path_or_repo: str | os.PathLike[str]) -> str:
    """The last part of a path or hub id."""
    name = os.fspath(path_or_repo)
    return PurePath(os.path.abspath(name) if name in (".", "..") else name).name or name


def headline(name: str, facts: Mapping[str, Any], device: str) -> str:
    """What an engine is, in a few words."""
    parts = (name, count(int(facts["parameters"])), main_format(facts["formats"]), device)
    return f"Engine({', '.join(parts)})"
