"""Word lists: how the gate writes them down. It knows no word."""

from __future__ import annotations


def word_set(text: str) -> frozenset[str]:
    """The words of a text, apart by spaces."""
    return frozenset(text.split())
