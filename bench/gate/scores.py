"""The measures: spans, characters, entities that are wholly covered, and decisions.

This file owns what counts as right. Recall comes first: what is missed leaves. Characters and
coverage ask only whether something is found, not what it is called. It knows no set and no arm.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.gate.arms import Spans
from bench.gate.sets import Example, sources

# What the sets and both arms mark alike; all else is ignored on every side.
CORE = {
    "person": "person", "address": "place", "location": "place", "place": "place",
    "payment_card": "card", "phone": "phone", "email": "e-mail", "url": "URL", "iban": "IBAN",
    "government_id": "SSN", "ip_address": "IP address", "driving_license": "licence",
}  # fmt: skip
PERSON = {"person": "person"}


def merged(spans: Iterable[tuple[int, int, str]], text: str, kinds: Mapping[str, str]) -> set[Any]:
    """Spans under the names of `kinds`, trimmed; neighbours of one kind become one.

    The sign before a handle is no part of it: one set marks it and others do not.
    """
    out: list[list[Any]] = []
    for start, end, label in sorted(one for one in spans if one[2] in kinds):
        while start < end and text[start] in " \n\t,@":
            start += 1
        while end > start and text[end - 1] in " \n\t,.":
            end -= 1
        kind = kinds[label]
        if out and out[-1][2] == kind and not text[out[-1][1] : start].strip(" \n,"):
            out[-1][1] = max(end, out[-1][1])
        elif start < end:
            out.append([start, end, kind])
    return {tuple(one) for one in out}


def covered(spans: Iterable[tuple[int, int, str]], text: str) -> set[int]:
    """The characters in the spans, white space apart."""
    return {i for start, end, _ in spans for i in range(start, end) if not text[i].isspace()}


def spans(
    examples: Sequence[Example], found: Sequence[Spans], kinds: Mapping[str, str]
) -> dict[str, Any]:
    """Strict spans, characters, and by category the share that is wholly covered."""
    right = gold_spans = found_spans = both = gold_chars = found_chars = 0
    total: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    strict: Counter[str] = Counter()
    for example, given in zip(examples, found, strict=True):
        gold = merged(example.spans, example.text, kinds)
        mine = merged(given, example.text, kinds)
        right += len(gold & mine)
        gold_spans, found_spans = gold_spans + len(gold), found_spans + len(mine)
        wanted, got = covered(gold, example.text), covered(mine, example.text)
        both, gold_chars = both + len(wanted & got), gold_chars + len(wanted)
        found_chars += len(got)
        for one in gold:
            total[one[2]] += 1
            strict[one[2]] += one in mine
            whole[one[2]] += covered([one], example.text) <= got
    recall, precision = _share(right, gold_spans), _share(right, found_spans)
    return {
        "texts": len(examples),
        "spans": gold_spans,
        "covered": _share(sum(whole.values()), gold_spans),
        "strict_recall": recall,
        "strict_precision": precision,
        "strict_f1": _share(2 * right, gold_spans + found_spans),
        "char_recall": _share(both, gold_chars),
        "char_precision": _share(both, found_chars),
        "categories": {
            kind: {
                "spans": count,
                "covered": _share(whole[kind], count),
                "strict_recall": _share(strict[kind], count),
            }
            for kind, count in sorted(total.items())
        },
    }


def entities(rows: Sequence[Mapping[str, Any]], found: Sequence[Spans]) -> dict[str, Any]:
    """TAB: entities of which every mention is wholly covered; titles before names are trimmed."""
    good: defaultdict[str, list[bool]] = defaultdict(list)
    right = all_found = 0
    for row, given in zip(rows, found, strict=True):
        text, got = row["text"], covered(given, row["text"])
        hidden: dict[tuple[str, str, str], bool] = {}
        to_mask: set[int] = set()
        for one in row["entities"]:
            start, kind = one["start_offset"], one["identifier_type"]
            if kind not in ("DIRECT", "QUASI"):
                continue
            to_mask |= covered([(start, one["end_offset"], "")], text)
            title = sources.TITLE.match(text[start : one["end_offset"]])
            if one["entity_type"] == "PERSON" and title:
                start += title.end()
            key = (one["entity_id"], kind, one["entity_type"])
            seen = covered([(start, one["end_offset"], "")], text) <= got
            hidden[key] = hidden.get(key, True) and seen
        right, all_found = right + len(got & to_mask), all_found + len(got)
        for (_, kind, entity_type), seen in hidden.items():
            good[kind].append(seen)
            good[f"{kind} {entity_type}"].append(seen)
    out = {
        kind: {"entities": len(seen), "recall": _share(sum(seen), len(seen))}
        for kind, seen in sorted(good.items())
    }
    return {"documents": len(rows), "char_precision": _share(right, all_found), "entities": out}


def decisions(outcomes: Sequence[str], over_masked: Sequence[bool]) -> dict[str, Any]:
    """Shares of texts by outcome, and of those in which something would be masked."""
    counts = Counter(outcomes)
    return {
        "texts": len(outcomes),
        "masked": _share(sum(over_masked), len(outcomes)),
        "kept": _share(counts["local"] + counts["refuse"], len(outcomes)),
        "asked": _share(counts["ask"], len(outcomes)),
        "outcomes": dict(sorted(counts.items())),
    }


def at_false_positives(private: Sequence[float], other: Sequence[float], share: float) -> float:
    """Recall where the limit lets at most `share` of the others through as private."""
    allowed = int(share * len(other))
    limit = sorted(other, reverse=True)[allowed]
    return _share(sum(score > limit for score in private), len(private))


def right_answer(case: Mapping[str, Any], text: str, found: Spans) -> bool:
    """All that should be found is covered, and nothing else is; dates alone are the policy's."""
    gold: set[int] = set()
    place = 0
    for value, *_ in case["find"]:
        start = text.index(value, place) if value in text[place:] else text.index(value)
        gold |= covered([(start, start + len(value), "")], text)
        place = start + len(value)
    got = covered([one for one in found if one[2] != "date"], text)
    return gold <= got and all(not text[i].isalnum() for i in got - gold)


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0


def dumped(value: Any) -> str:
    """For printing."""
    return json.dumps(value, indent=1, ensure_ascii=False)
