"""How the tests of the rules ask and read: texts in, (value, category) out."""

from __future__ import annotations

from lily.gate.findings import Finding
from lily.gate.normalize import normalize
from lily.gate.rules import find


def findings(text: str, country: str | None = None) -> list[Finding]:
    """All findings of the rules."""
    return find(normalize(text), country=country)


def found(text: str, country: str | None = None) -> list[tuple[str, str]]:
    """The found values with their categories, in order."""
    return [(text[each.start : each.end], each.category.value) for each in findings(text, country)]
