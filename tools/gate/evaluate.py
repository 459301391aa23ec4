"""Measures the gate's model on development and held-out sets.

    evaluate.py read --model FOLDER --data DATA --readings FILE            the network once over
    every set evaluate.py report --data DATA --readings FILE [--calibration FILE]   the figures,
    as JSON

This file owns the metrics. UNER (EWT) and pii-anon are read here and nowhere else: evaluation only.
The figures are the model's alone, without the gate's rules.
"""

from __future__ import annotations

import argparse
import gzip
import json
import pickle
import random
from collections.abc import Iterable
from pathlib import Path

import decode
import export
import grammar
import numpy as np
import sources
from labels import LABELS, TOPICS
from safetensors.torch import load_file
from sources import Example
from tokenizers import Tokenizer

HERE = Path(__file__).parent
# What presidio-research and the peers mark alike; all else is ignored on both sides.
CORE = {
    "person": "person", "address": "place", "location": "place", "payment_card": "card",
    "phone": "phone",
    "email": "email", "url": "url", "iban": "iban", "government_id": "id", "ip_address": "ip",
    "driving_license": "licence",
}  # fmt: skip
HARD = {*LABELS} - {
    "organization",
    "location",
    "date",
    "amount",
    "demographic",
    "age",
    "health",
    "medication",
    "url",
}
PII_ANON = {
    "PERSON_NAME": "person", "STREET_ADDRESS": "address", "PHONE_NUMBER": "phone",
    "EMAIL_ADDRESS": "email",
    "SOCIAL_SECURITY_NUMBER": "government_id", "IP_ADDRESS": "ip_address",
    "CREDIT_CARD_NUMBER": "payment_card",
    "IBAN": "iban", "DRIVER_LICENSE_NUMBER": "driving_license", "URL": "url",
}  # fmt: skip

Spans = list[tuple[int, int, str]]


def held_out_prompts(name: str) -> list[Example]:
    """`held_out/NAME.txt`."""
    out = []
    for head, text in grammar.read_templates(HERE / f"held_out/{name}.txt"):
        names, subject = head.split()
        topics = sources.topics_of(*([] if names == "-" else names.split(",")))
        out.append(
            Example(text, [], "anything", topics, ["personal", "general", "fiction"].index(subject))
        )
    return out


def pii_anon(folder: Path, part: str, count: int) -> list[Example]:
    """A fixed sample of a pii-anon development file."""
    with gzip.open(folder / f"pii_anon/{part}_dev.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    out = []
    for row in random.Random(5).sample(rows, count):
        spans = [
            (a["start"], a["end"], PII_ANON[a["entity_type"]])
            for a in row["annotations"]
            if a["entity_type"] in PII_ANON
        ]
        out.append(Example(row["text"], sorted(spans)))
    return out


def sets(folder: Path) -> dict[str, list[Example]]:
    """Every set that is measured."""
    rng = random.Random(3)
    return {
        "presidio": sources.presidio_rows(folder, training=False),
        "tab": sources.tab(folder, "dev"),
        "btc": sources.columns(folder / "btc/btc.dev", 0, 1),
        "wnut": sources.columns(folder / "wnut17/emerging.dev.conll", 0, 1),
        "uner": sources.columns(folder / "uner/en_ewt-ud-dev.iob2", 1, 2)[:1200],
        "meddocan": sources.meddocan(folder, "dev")[:30],
        "clinical": pii_anon(folder, "test_clinical", 80),
        "legal": pii_anon(folder, "test_legal", 50),
        "technology": pii_anon(folder, "test_technology", 80),
        "benign": rng.sample(sources.benign(folder, "test"), 1000),
        "development": held_out_prompts("development"),
        "fresh": held_out_prompts("fresh"),
    }


def merged(
    spans: Iterable[tuple[int, int, str]], text: str, kinds: dict[str, str]
) -> set[tuple[int, int, str]]:
    """Spans of `kinds` under the kind's name; neighbours of one kind with no letter between
    become one."""
    out: list[tuple[int, int, str]] = []
    for start, end, label in sorted(
        (a, b, kinds[label]) for a, b, label in spans if label in kinds
    ):
        gap = text[out[-1][1] : start] if out else "x"
        if (
            out
            and out[-1][2] == label
            and not any(c.isalnum() for c in gap)
            and (gap.strip(" \n,") == "")
        ):
            out[-1] = (out[-1][0], max(end, out[-1][1]), label)
        else:
            out.append((start, end, label))
    return set(out)


def trimmed(span: tuple[int, int, str], text: str) -> tuple[int, int, str]:
    """Without white space and closing punctuation at its ends."""
    a, b, label = span
    while a < b and text[a] in " \n\t,":
        a += 1
    while b > a and text[b - 1] in " \n\t,.":
        b -= 1
    return a, b, label


def characters(spans: Iterable[tuple[int, int, str]], text: str) -> set[int]:
    """Non-space characters that the spans cover."""
    return {i for a, b, _ in spans for i in range(a, b) if not text[i].isspace()}


def span_figures(
    examples: list[Example], found: list[Spans], kinds: dict[str, str]
) -> dict[str, float]:
    """Strict F1 and label-blind character precision and recall, and the share of spans wholly
    covered."""
    hit = gold_n = found_n = both = gold_c = found_c = whole = 0
    for example, spans in zip(examples, found, strict=True):
        gold = {trimmed(s, example.text) for s in merged(example.spans, example.text, kinds)}
        mine = {trimmed(s, example.text) for s in merged(spans, example.text, kinds)}
        hit, gold_n, found_n = hit + len(gold & mine), gold_n + len(gold), found_n + len(mine)
        g, m = characters(gold, example.text), characters(mine, example.text)
        both, gold_c, found_c = both + len(g & m), gold_c + len(g), found_c + len(m)
        whole += sum(characters([span], example.text) <= m for span in gold)
    p, r = hit / max(1, found_n), hit / max(1, gold_n)
    return {
        "precision": p, "recall": r, "f1": 2 * p * r / max(1e-9, p + r), "spans": gold_n,
        "char_precision": both / max(1, found_c), "char_recall": both / max(1, gold_c),
        "whole": whole / max(1, gold_n),
    }  # fmt: skip


def tab_figures(folder: Path, found: list[Spans]) -> dict[str, float]:
    """Entities of which every mention is wholly covered, DIRECT and QUASI, and character precision.

    Titles before names are trimmed; what covers a DIRECT or QUASI mention counts as precise.
    """
    lines = (folder / "tab/tab_train_dev.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    rows = [row for row in rows if row["metadata"]["provenance"]["dataset_type"] == "dev"]
    good, total = {"DIRECT": 0, "QUASI": 0}, {"DIRECT": 0, "QUASI": 0}
    right = all_found = 0
    for row, spans in zip(rows, found, strict=True):
        text, mine = row["text"], characters(spans, row["text"])
        entities: dict[tuple[str, str], bool] = {}
        gold: set[int] = set()
        for e in row["entities"]:
            kind, start, end = e["identifier_type"], e["start_offset"], e["end_offset"]
            if kind not in good:
                continue
            gold |= characters([(start, end, "")], text)
            title = sources.TITLE.match(text[start:end])
            if e["entity_type"] == "PERSON" and title:
                start += title.end()
            key = (e["entity_id"], kind)
            wanted = characters([(start, end, "")], text)
            entities[key] = entities.get(key, True) and wanted <= mine
        right, all_found = right + len(mine & gold), all_found + len(mine)
        for (_, kind), covered in entities.items():
            total[kind] += 1
            good[kind] += covered
    return {
        "direct_recall": good["DIRECT"] / total["DIRECT"], "direct": total["DIRECT"],
        "quasi_recall": good["QUASI"] / total["QUASI"], "quasi": total["QUASI"],
        "char_precision": right / max(1, all_found),
    }  # fmt: skip


def document_scores(readings: list[decode.Reading], settings: dict[str, object]) -> np.ndarray:
    """[texts] the greatest ratio of a topic's score to its threshold; at 1 the text is
    sensitive."""
    limits = np.array([settings["thresholds"][topic] for topic in TOPICS])  # type: ignore[index]
    return np.array(
        [(np.array(list(decode.document(r, settings).values())) / limits).max() for r in readings]
    )


def document_figures(
    examples: list[Example], readings: list[decode.Reading], settings: dict[str, object]
) -> dict[str, object]:
    """Recall of personal prompts and false positives among the others; recall at exactly 5 %
    false positives."""
    scores = document_scores(readings, settings)
    private = np.array([e.subject == 0 and any(e.topics) for e in examples])
    limit = np.quantile(scores[~private], 0.95)
    by_topic = {
        topic: float(
            (scores[[i for i, e in enumerate(examples) if private[i] and e.topics[k]]] >= 1).mean()
        )
        for k, topic in enumerate(TOPICS)
    }
    return {
        "private": int(private.sum()), "other": int((~private).sum()),
        "recall": float((scores[private] >= 1).mean()),
        "false_positives": float((scores[~private] >= 1).mean()),
        "recall_at_5": float((scores[private] > limit).mean()), "recall_by_topic": by_topic,
        "missed": [examples[i].text for i in np.flatnonzero(private & (scores < 1))],
        "flagged": [examples[i].text for i in np.flatnonzero(~private & (scores >= 1))],
    }  # fmt: skip


def report(
    folder: Path,
    all_sets: dict[str, list[Example]],
    readings: dict[str, list[decode.Reading]],
    calibration: dict[str, dict[str, object]],
) -> dict[str, object]:
    """Every figure, by set."""

    def spans_of(name: str) -> list[Spans]:
        return [[s[:3] for s in decode.spans(r, calibration["decode"])] for r in readings[name]]

    only_person = {"person": "person"}
    out: dict[str, object] = {}
    found = spans_of("presidio")
    out["presidio"] = span_figures(all_sets["presidio"], found, CORE)
    out["presidio_by_label"] = {
        label: span_figures(all_sets["presidio"], found, {label: label})
        for label in sorted(set(sources.PRESIDIO.values()))
    }
    for name in ("clinical", "legal", "technology"):
        out[name] = span_figures(all_sets[name], spans_of(name), CORE)
    for name in ("btc", "wnut", "uner"):
        out[name] = span_figures(all_sets[name], spans_of(name), only_person)
    out["tab"] = tab_figures(folder, spans_of("tab"))
    found = spans_of("meddocan")
    everything = dict.fromkeys(LABELS, "any") | {
        "place": "any",
        "when": "any",
        "number": "any",
        "unclear": "any",
    }
    out["meddocan_person"] = span_figures(all_sets["meddocan"], found, only_person)
    out["meddocan_all"] = span_figures(all_sets["meddocan"], found, everything)
    found = spans_of("benign")
    out["benign"] = {
        "any_span": sum(bool(s) for s in found) / len(found),
        "hard_span": sum(any(label in HARD for *_, label in s) for s in found) / len(found),
        "sensitive": float(
            (document_scores(readings["benign"], calibration["document"]) >= 1).mean()
        ),
    }
    for name in ("development", "fresh"):
        out[name] = document_figures(all_sets[name], readings[name], calibration["document"])
    return out


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["read", "report"])
    parser.add_argument("--model", type=Path, help="a folder of FORMAT.md")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--readings", type=Path, required=True)
    parser.add_argument("--calibration", type=Path)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    all_sets = sets(args.data)
    if args.what == "read":
        tokenizer = Tokenizer.from_file(str(args.model / "tokenizer.json"))
        reader = decode.Reader(
            export.restored(load_file(args.model / "model.safetensors")), tokenizer
        )
        result = {
            name: reader.read([e.text for e in examples]) for name, examples in all_sets.items()
        }
        args.readings.write_bytes(pickle.dumps(result))
        return
    readings = pickle.loads(args.readings.read_bytes())
    calibration = (
        json.loads(args.calibration.read_text()) if args.calibration else export.uncalibrated()
    )
    text = json.dumps(
        report(args.data, all_sets, readings, calibration), indent=1, ensure_ascii=False
    )
    if args.out:
        args.out.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
