"""Resolution: from all hits to findings that do not overlap.

This file owns who wins. It knows no recogniser.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from lily.gate.findings import Finding


def _rank(finding: Finding) -> tuple[bool, int, float, int, str]:
    """Validated before guessed, then the longer, the surer, the earlier."""
    validated = finding.confidence >= 1.0
    return (
        not validated,
        finding.start - finding.end,
        -finding.confidence,
        finding.start,
        finding.rule,
    )


def resolve(hits: Iterable[Finding]) -> list[Finding]:
    """Findings in order of place, one a character: the longest validated wins."""
    starts: list[int] = []
    kept: list[Finding] = []
    for hit in sorted(set(hits), key=_rank):
        index = bisect_left(starts, hit.end)
        if index and kept[index - 1].end > hit.start:
            continue
        starts.insert(index, hit.start)
        kept.insert(index, hit)
    return kept
