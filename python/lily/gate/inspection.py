"""One look at the texts of one item: what is in them, what follows, and how they read masked.

This file owns the order of finding, deciding, masking and looking again. It fails by raising:
whoever calls it keeps the text here then. It knows neither time nor log.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from lily.gate.agreement import plausible
from lily.gate.detectors import Detectors
from lily.gate.facts import VALIDATED, Context
from lily.gate.findings import Finding, Mask, Source, TopicFinding, Verdict
from lily.gate.masking import Masked, Vault, mask
from lily.gate.messages import Parts
from lily.gate.patterns import Words, plain
from lily.gate.policy import Decision, decide, fault
from lily.gate.settings import Destination, Settings

_BLANK = "\u2022"
_NUMBER = re.compile(r"\d(?:[ .-]?\d)*")


@dataclass(frozen=True)
class Judged:
    """The decision on some texts. ``texts`` are the masked ones; None where nobody may see them."""

    decision: Decision
    findings: tuple[Finding, ...] = ()
    topics: tuple[TopicFinding, ...] = ()
    texts: list[str] | None = None
    masked: tuple[Masked, ...] = ()

    def with_decision(self, decision: Decision) -> Judged:
        """The same with another decision."""
        return replace(self, decision=decision)

    def verdict(self, parts: Parts, destination: str) -> Verdict:
        """In the words that users see."""
        masks: list[Mask] = [one for masked in self.masked for one in masked.masks]
        return Verdict(
            outcome=self.decision.outcome,
            destination=destination,
            findings=self.findings,
            topics=self.topics,
            reasons=self.decision.reasons,
            rules=self.decision.rules,
            masked="" if self.texts is None else parts.together(self.texts)[0],
            mapping={token: value for one in self.masked for token, value in one.mapping.items()},
            masks=tuple(masks),
        )


class Inspection:
    """Looks at texts with these settings and detectors."""

    def __init__(self, settings: Settings, detectors: Detectors) -> None:
        self._settings = settings
        self._detectors = detectors
        self._deny = Words(settings.deny)
        self._allow = frozenset(map(plain, settings.allow))

    def judge(self, parts: Parts, where: Destination, context: Context, vault: Vault) -> Judged:
        """Find, decide, mask, and look again. Raises whatever a detector raises."""
        joined, starts = parts.together(parts.texts)
        reading = self._detectors.read(joined)
        by_rules = self._detectors.rules(joined)
        found = [
            *by_rules,
            *plausible(joined, reading.findings, by_rules),
            *(one for pattern in self._settings.patterns for one in pattern.find(joined)),
            *self._deny.find(joined),
            *vault.mentions(joined),
            *self._across(parts, starts, by_rules),
        ]
        topics = tuple(reading.topics)
        _check(found, topics, len(joined))
        findings = tuple(sorted(set(self._not_allowed(joined, found))))
        decision = decide(findings, topics, reading.judged is True, where, self._settings, context)
        masked = tuple(
            mask(text, _inside(decision.masked, start, len(text)), vault)
            for text, start in zip(parts.texts, starts, strict=True)
        )
        if self._leaks(parts, [vault.blanked(one.text, _BLANK) for one in masked], where, context):
            return Judged(fault("mask.leak", context), findings, topics)
        shifted = tuple(
            replace(one, masks=tuple(_shifted(each, start) for each in one.masks))
            for one, start in zip(masked, starts, strict=True)
        )
        limit = self._settings.thresholds.topic_unsure
        topics = tuple(one for one in topics if one.confidence >= limit)
        return Judged(decision, findings, topics, [one.text for one in masked], shifted)

    def _not_allowed(self, text: str, found: Iterable[Finding]) -> Iterator[Finding]:
        """Without the values that the settings allow; those never clear a secret."""
        for one in found:
            allowed = self._allow and plain(text[one.start : one.end]) in self._allow
            if not allowed or one.category.is_secret or one.source is Source.USER:
                yield one

    def _across(
        self, parts: Parts, starts: Sequence[int], known: Sequence[Finding]
    ) -> Iterator[Finding]:
        """Values that somebody has split over messages: validated where these are put together.

        What is such a value in its own message already needs no neighbour.
        """
        whole = {(one.category, place) for one in known for place in range(*one.span)}
        for texts in _glued(parts, starts):
            for one in self._detectors.rules("".join(text for _, text in texts)):
                pieces = list(_pieces(one, [(start, len(text)) for start, text in texts]))
                alone = any(
                    (one.category, place) in whole for each in pieces for place in range(*each.span)
                )
                if len(pieces) > 1 and one.confidence >= VALIDATED and not alone:
                    yield from pieces

    def _leaks(
        self, parts: Parts, blanked: Sequence[str], where: Destination, context: Context
    ) -> bool:
        """Whether the rules still see a validated value that should have been masked."""
        if list(blanked) == parts.texts:
            return False  # nothing has changed, so nothing new is to be seen
        text, _ = parts.together(blanked)
        hits = [one for one in self._detectors.rules(text) if one.confidence >= VALIDATED]
        left = list(self._not_allowed(text, hits))
        return bool(decide(left, (), True, where, self._settings, context).masked)


def _check(found: Iterable[Finding], topics: Iterable[TopicFinding], length: int) -> None:
    """A detector that speaks nonsense is damaged. Raises ValueError."""
    for one in found:
        if not 0 <= one.start < one.end <= length:
            raise ValueError(f"{one.rule} found {one.span} in a text of {length} characters")
    numbers = [one.confidence for one in found]
    numbers += [number for one in topics for number in (one.confidence, one.subject_confidence)]
    if not all(math.isfinite(number) and 0 <= number <= 1 for number in numbers):
        raise ValueError("a detector gave a confidence that is not from 0 to 1")


def _inside(findings: Iterable[Finding], start: int, length: int) -> Iterator[Finding]:
    """The parts of findings that lie in a text which begins at ``start``, in its own offsets."""
    for one in findings:
        low, high = max(one.start - start, 0), min(one.end - start, length)
        if low < high:
            yield replace(one, start=low, end=high)


def _glued(parts: Parts, starts: Sequence[int]) -> Iterator[list[tuple[int, str]]]:
    """What each speaker has said, put end to end: all of it, and its numbers alone.

    Texts with where they begin. A text with several numbers tells none of them in pieces.
    """
    for speaker in dict.fromkeys(parts.speakers):
        own = [index for index, one in enumerate(parts.speakers) if one == speaker]
        numbers = [(starts[i], list(_NUMBER.finditer(parts.texts[i]))) for i in own]
        whole = [(starts[i], parts.texts[i]) for i in own]
        alone = [(start + one[0].start(), one[0][0]) for start, one in numbers if len(one) == 1]
        yield from (texts for texts in (whole, alone) if len(texts) > 1)


def _pieces(finding: Finding, texts: Iterable[tuple[int, int]]) -> Iterator[Finding]:
    """A finding in texts put end to end, as findings in each of them, which begin elsewhere."""
    place = 0
    for start, length in texts:
        low, high = max(finding.start, place), min(finding.end, place + length)
        if low < high:
            yield replace(finding, start=start + low - place, end=start + high - place)
        place += length


def _shifted(one: Mask, start: int) -> Mask:
    finding = one.finding
    moved = replace(finding, start=finding.start + start, end=finding.end + start)
    return replace(one, finding=moved)
