"""From the logits of tokens to spans: Viterbi over BIOES tags, whole words, confidence.

This file owns the tags' grammar. It knows no network and no text, only where words lie.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lily.gate.findings import Finding, Source
from lily.gate.neural.settings import Settings
from lily.gate.neural.tokens import Tokens

Logits = NDArray[np.float64]

OUTSIDE = -1


@dataclass(frozen=True)
class Run:
    """Tokens [first, last] of one label."""

    first: int
    last: int
    label: int


def shifted(logits: NDArray[np.float32], settings: Settings, outside_offset: float) -> Logits:
    """Logits [tokens, 1 + 4 * labels] with the calibrated offsets, and the caller's for O."""
    offsets = np.repeat([0.0, *settings.label_offsets], [1, *[4] * len(settings.labels)])
    offsets[0] = settings.outside_offset + outside_offset
    moved: Logits = logits.astype(np.float64) + offsets
    return moved


def viterbi(logits: Logits) -> list[Run]:
    """The runs of the best sequence of tags: B I* E or S of one label each, all else O.

    A state is either closed (behind O, E or S) or open in a label (behind B or I), so a token costs
    one step over labels and not over pairs of tags.
    """
    outside = logits[:, 0]
    begin, inside, end, single = (logits[:, tag::4] for tag in (1, 2, 3, 4))
    label_alone = single.argmax(1)
    best_alone = single.max(1)
    alone = np.where(best_alone > outside, label_alone, OUTSIDE)
    stay = np.maximum(outside, best_alone)
    total, labels = begin.shape
    continued = np.zeros((total, labels), bool)  # the open state came from an open one
    ended = np.full(total, OUTSIDE)  # the label whose E stands here on the best closed path
    closed, opened = 0.0, np.full(labels, -np.inf)
    for t in range(total):
        endings = opened + end[t]
        label = int(endings.argmax())
        beginnings, insides = closed + begin[t], opened + inside[t]
        closed += stay[t]
        if endings[label] > closed:
            closed, ended[t] = float(endings[label]), label
        np.greater(insides, beginnings, out=continued[t])
        opened = np.maximum(beginnings, insides)
    return _trace(alone, ended, continued)


def _trace(
    alone: NDArray[np.int64], ended: NDArray[np.int64], continued: NDArray[np.bool_]
) -> list[Run]:
    """Backwards from the end, which is closed."""
    runs = []
    t = len(alone) - 1
    while t >= 0:
        last, label = t, int(ended[t])
        if label != OUTSIDE:
            t -= 1
            while continued[t, label]:
                t -= 1
            runs.append(Run(t, last, label))
        elif alone[t] != OUTSIDE:
            runs.append(Run(t, t, int(alone[t])))
        t -= 1
    return runs[::-1]


def label_shares(logits: Logits) -> Logits:
    """The probability of each label by token, [tokens, labels]: of its four tags together."""
    weights = np.exp(logits - logits.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    shares: Logits = weights[:, 1:].reshape(len(logits), -1, 4).sum(2)
    return shares


def spans(logits: Logits, tokens: Tokens, settings: Settings) -> list[Finding]:
    """Findings in order of their place: runs widened to whole words, those below the threshold of
    their label left out."""
    shares = label_shares(logits)
    findings: list[Finding] = []
    for run in viterbi(logits):
        confidence = float(shares[run.first : run.last + 1, run.label].mean())
        if confidence < settings.label_thresholds[run.label]:
            continue
        category = settings.labels[run.label]
        one = Finding(
            start=int(tokens.starts[run.first]),
            end=int(tokens.ends[run.last]),
            category=category,
            confidence=min(confidence, 1.0),
            rule=f"neural.{category.value}",
            source=Source.NEURAL,
        )
        if findings and _share_a_word(findings[-1], one):
            one = replace(
                one,
                start=findings[-1].start,
                confidence=max(findings.pop().confidence, one.confidence),
            )
        findings.append(one)
    return findings


def _share_a_word(before: Finding, after: Finding) -> bool:
    """Whether two runs of one label meet inside a word, which both were widened to."""
    return before.category is after.category and after.start < before.end
