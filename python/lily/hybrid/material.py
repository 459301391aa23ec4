"""Private material of one run, under handles: documents that the user named, results of the worker.

This file owns what a planner may know of a piece, which is its handle, its kind and its rough size,
and where handles in an answer are replaced, which happens on this machine alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lily.hybrid.extract import files_below, kind_of, read_text

_HANDLE = re.compile(r"\{\{\s*([dr][0-9]{1,4})\s*\}\}")


@dataclass(frozen=True)
class Piece:
    """A text that stays.

    Attributes:
        handle: "d1" for a document, "r1" for a result.
        kind: what kind of thing it is, in words that hold nothing of it.
        label: what the user calls it; never sent.
    """

    handle: str
    kind: str
    label: str
    text: str

    @property
    def public(self) -> str:
        """All that a planner is told of it. Its size is rounded: an exact one could tell more."""
        words = len(self.text.split())
        size = next((top for top in (50, 200, 1000, 5000, 25_000) if words <= top), None)
        about = f"up to {size:,} words" if size else "over 25,000 words"
        return f"{self.handle}: {self.kind}, {about}"


class Materials:
    """All pieces of a run, in the order in which they came."""

    def __init__(self) -> None:
        self._pieces: dict[str, Piece] = {}

    def __iter__(self) -> Iterator[Piece]:
        return iter(self._pieces.values())

    def add_path(self, path: Path, max_bytes: int) -> list[Piece]:
        """A file, or each readable file of a folder. Raises InvalidInput."""
        return [
            self._add("d", kind_of(each) or "text", str(each), read_text(each, max_bytes))
            for each in files_below(path)
        ]

    def add_text(self, text: str, label: str) -> Piece:
        """A text that the user gave as private."""
        return self._add("d", "text", label, text)

    def add_result(self, text: str) -> Piece:
        """What the worker made of others."""
        return self._add("r", "result of the worker", "result", text)

    def find(self, handle: object) -> Piece | None:
        """By handle; None for anything else, whatever it is."""
        return self._pieces.get(handle) if isinstance(handle, str) else None

    def expand(self, text: str) -> str:
        """Puts results in the place of ``{{r1}}``; for the user's eyes. Documents stay handles."""

        def piece(found: re.Match[str]) -> str:
            known = self._pieces.get(found[1])
            if not known:
                return found[0]
            return known.text if known.handle.startswith("r") else f"[{known.label}]"

        return _HANDLE.sub(piece, text)

    def _add(self, letter: str, kind: str, label: str, text: str) -> Piece:
        number = 1 + sum(handle.startswith(letter) for handle in self._pieces)
        piece = Piece(f"{letter}{number}", kind, label, text)
        self._pieces[piece.handle] = piece
        return piece
