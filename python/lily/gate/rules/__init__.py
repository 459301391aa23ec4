"""The rules: recognisers of private things by shape, checksum and context.

This file owns the list of families and runs them over every reading of a text. Needs the extra
`lily-engine[gate]` (`phonenumbers`, `python-stdnum`, `mnemonic`); opens no socket.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lily.gate.findings import Finding
from lily.gate.normalize import Normalized
from lily.gate.readings import Reading
from lily.gate.rules import (
    addresses,
    contact,
    dates,
    government,
    labels,
    money,
    names,
    network,
    people,
    personal,
    secrets,
    seeds,
)
from lily.gate.rules.resolve import resolve
from lily.gate.rules.scan import Recognizer, Scan

__all__ = ["find"]

_FAMILIES = (
    secrets, seeds, money, government, contact, network, addresses, dates, labels, people, names,
    personal,
)  # fmt: skip
RECOGNIZERS: tuple[Recognizer, ...] = tuple(
    recognizer for family in _FAMILIES for recognizer in family.RECOGNIZERS
)


def _read(reading: Reading, country: str | None) -> Iterator[Finding]:
    scan = Scan(reading.text, country)
    for recognizer in RECOGNIZERS:
        for finding in recognizer(scan):
            start, end = reading.span(finding.start, finding.end)
            # A view of a table repeats its headers; a value in one is found where it stands.
            if any(map(str.isalnum, reading.original[start:end])):
                yield replace(finding, start=start, end=end)


def find(normalized: Normalized, *, country: str | None = None) -> list[Finding]:
    """All findings in a text, in order of place, in offsets of the original; none overlaps another.

    Args:
        normalized: what `normalize` made of the text.
        country: ISO 3166 code, such as "DE"; national numbers of that country then count without a
            word beside them.
    """
    readings = (normalized.copy, *normalized.views)
    return resolve(finding for reading in readings for finding in _read(reading, country))
