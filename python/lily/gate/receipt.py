"""A receipt: what would be sent, where, what was masked and why, for people and for programs.

This file owns the two forms. Both may be kept: they have placeholders and no originals. It knows no
rule.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from lily.gate.findings import Finding, Outcome, Verdict
from lily.gate.policy import word

_HEADLINES = {
    Outcome.ALLOW: "This may be sent as it is.",
    Outcome.MASK: "This may be sent with placeholders.",
    Outcome.ASK: "This may be sent only if you agree.",
    Outcome.LOCAL: "This stays on this machine.",
    Outcome.REFUSE: "This is not sent.",
}
_MAX_CHARS = 2_000


def as_json(verdict: Verdict) -> dict[str, Any]:
    """The verdict without originals: ``findings`` in offsets of the text that was given."""
    return {
        "outcome": verdict.outcome.value,
        "destination": verdict.destination,
        "reasons": list(verdict.reasons),
        "rules": list(verdict.rules),
        "findings": [_finding(one) for one in verdict.findings],
        "topics": [
            {
                "topic": one.topic.value,
                "subject": one.subject.value,
                "confidence": round(one.confidence, 4),
                "subject_confidence": round(one.subject_confidence, 4),
            }
            for one in verdict.topics
        ],
        "masked": verdict.masked,
        "masks": [
            {
                "placeholder": one.placeholder,
                "category": one.finding.category.value,
                "rule": one.finding.rule,
                "restorable": one.restorable,
            }
            for one in verdict.masks
        ],
    }


def headline(verdict: Verdict) -> str:
    """The outcome as a sentence."""
    return _HEADLINES[verdict.outcome]


def as_text(verdict: Verdict) -> str:
    """What a person reads."""
    lines = [headline(verdict), f"To: {verdict.destination}", "", "Why:"]
    lines += [f"  {reason}" for reason in verdict.reasons]
    if verdict.masks:
        lines += ["", "Placeholders:"]
        counts = Counter(one.placeholder for one in verdict.masks)
        for one in {mask.placeholder: mask for mask in verdict.masks}.values():
            times = f", {counts[one.placeholder]} times" if counts[one.placeholder] > 1 else ""
            back = "" if one.restorable else "; it is never restored"
            kind = word(one.finding.category)
            lines.append(f"  {one.placeholder}: {kind}{times} (by {one.finding.rule}){back}")
    title = {
        Outcome.ALLOW: "What would be sent:",
        Outcome.MASK: "What would be sent:",
        Outcome.ASK: "What would be sent if you agree:",
    }.get(verdict.outcome)
    if title and verdict.masked:
        shown = verdict.masked[:_MAX_CHARS]
        rest = len(verdict.masked) - len(shown)
        lines += ["", title, *(f"  {line}" for line in shown.splitlines())]
        lines += [f"  ({rest} more characters)"] if rest else []
    return "\n".join(lines) + "\n"


def _finding(one: Finding) -> dict[str, Any]:
    return {
        "start": one.start,
        "end": one.end,
        "category": one.category.value,
        "confidence": round(one.confidence, 4),
        "rule": one.rule,
        "source": one.source.value,
    }
