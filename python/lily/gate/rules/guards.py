"""Guard zones: technical text whose digits are nobody's.

This file owns the shapes of identifiers, digests, versions, times and paths. A recogniser whose
evidence is only a shape asks whether its hit lies in one; those with a checksum of their own and a
key word beside it need not.
"""

from __future__ import annotations

import re

_HEX = "[0-9A-Fa-f]"

_SHAPES = (
    # UUIDs, and digests of the usual lengths.
    rf"(?<![0-9A-Za-z]){_HEX}{{8}}-(?:{_HEX}{{4}}-){{3}}{_HEX}{{12}}(?![0-9A-Za-z])",
    rf"(?<![0-9A-Za-z])(?=[0-9]{{0,127}}[A-Fa-f])(?:{_HEX}{{128}}|{_HEX}{{96}}|{_HEX}{{64}}"
    rf"|{_HEX}{{56}}"
    rf"|{_HEX}{{40}}|{_HEX}{{32}})(?![0-9A-Za-z])",
    r"(?<!\w)sha(?:1|224|256|384|512)[-:=][A-Za-z0-9+/=_-]{8,128}",
    rf"\b(?:commit|revert|sha|rev|revision|index|checkout|cherry-pick|digest|etag|hash)"
    rf"[ :=\"]{{1,3}}"
    rf"{_HEX}{{7,64}}\b",
    # Versions.
    r"(?<![A-Za-z0-9])[vV](?:er(?:sion)?)?\.?[ \t]?\d{1,6}(?:\.\d{1,6}){1,5}[\w.+-]{0,32}",
    r"\b(?:[Vv]ersion|VERSION|[Rr]elease|[Bb]uild|[Ff]irmware|[Dd]river)"
    r"[ :=\"']{1,5}\d{1,6}(?:\.\d{1,6}){1,5}",
    r"(?m:^[#\s>*-]{0,8}\[\d{1,6}(?:\.\d{1,6}){1,5}[\w.+-]{0,32}\](?:[ \t]{1,2}-"
    r"[ \t]{1,2}\d{4}-\d\d-\d\d)?)",
    r"(?:[=<>~^]=?|@|/)[ ]?\d{1,6}(?:\.\d{1,6}){2,5}(?![\w.]{0,64}@)(?![\d.]{0,16}/)",
    r"\b(?:[Ss]ections?|[Cc]hapters?|[Cc]lauses?|[Ff]igures?|[Ff]ig\.|§)"
    r"[ ]?\d{1,4}(?:\.\d{1,4}){1,5}",
    # Times of machines: ISO stamps, clock times with seconds, Unix times, DNS serials.
    r"(?<!\d)\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?",
    r"(?<!\d)\d\d/\d\d(?:/\d{2,4})?[ ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?",
    r"(?<![\d.+-])1[0-9]\d{8}(?:\d{3}|\d{6}|\d{9})?(?:\.\d{1,9})?(?![\d.-])",
    r"\b(?:serial|SOA|ttl|TTL|epoch|timestamp|ts|port|pid|PID|uid|gid|tid|inode|offset|size|bytes"
    r"|line)"
    r"[ :=]{1,3}\d{1,19}\b",
    # Places in code, paths of links, code expressions, decimals.
    r"\b[\w/-]{1,128}\.[a-zA-Z]{1,5}:\d{1,7}(?::\d{1,5})?\b",
    r"\bhttps?://[\w.-]{1,253}(?::\d{1,5})?(?:/[^\s?#\"'<>)]{0,2000})?",
    r"(?<![\w./])(?:~|\.{1,2})?(?:/[\w.@-]{1,128}){2,32}",
    r"(?<![\d.])-?\d{1,19}\.\d{5,18}(?![\d.])",
    r"\b0x[0-9A-Fa-f]{1,16}\b",
    r"\b(?:SKU|sku|PO|RMA|ASIN|ISBN|EAN|UPC|GTIN|[Oo]rder|[Ii]tem|[Pp]art|[Pp]roduct)"
    r"(?:[ _-](?:[Nn]o\.?|[Nn]umber|[Ii][Dd]|#))?[ :#=-]{0,3}[A-Z]{0,4}\d[\w-]{2,31}",
)
_GUARD = re.compile("|".join(f"(?:{shape})" for shape in _SHAPES))


def zones(text: str) -> list[tuple[int, int]]:
    """The guard zones of a text, sorted; none overlaps another."""
    return [match.span() for match in _GUARD.finditer(text)]
