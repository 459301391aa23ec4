"""The Markdown of bench/results/gate.json: both arms side by side, recall first."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]
SETS = {
    "presidio_research": "presidio-research, held-out templates",
    "wnut17": "WNUT-17 dev, names of people",
    "btc": "BTC dev, names of people",
    "uner": "UNER (EWT) dev, names of people",
    "meddocan": "MEDDOCAN dev (Spanish), names of people",
    "meddocan, every category": "MEDDOCAN dev, whatever is marked",
}


def lines(document: Document) -> list[str]:
    """Tables of spans, court documents, decisions and times."""
    parts = [_spans(document), _categories(document), _court(document), _decisions(document)]
    return [line for part in parts for line in [*part, ""]] + _times(document)


def _rows(header: list[str], rows: list[list[str]]) -> list[str]:
    rule = ["---"] + ["--:"] * (len(header) - 1)
    return ["| " + " | ".join(row) + " |" for row in (header, rule, *rows)]


def _pair(arms: Document, *keys: str) -> str:
    """Lily's figure, and the peer's in brackets."""

    def value(arm: str) -> str:
        at: Any = arms[arm]
        for key in keys:
            at = at[key]
        return f"{at:.3f}"

    return value("lily") + (f" ({value('presidio')})" if "presidio" in arms else "")


def _spans(document: Document) -> list[str]:
    keys = ("covered", "char_recall", "char_precision", "strict_f1")
    rows = [
        [title, f"{arms['lily']['spans']:,}", *(_pair(arms, key) for key in keys)]
        for name, title in SETS.items()
        if (arms := document["spans"].get(name))
    ]
    header = ["set", "spans", "wholly covered", "character recall", "precision", "strict F1"]
    return _rows(header, rows)


def _categories(document: Document) -> list[str]:
    arms = document["spans"]["presidio_research"]
    rows = [
        [kind, str(known["spans"]), *(_pair(arms, "categories", kind, key) for key in keys)]
        for kind, known in arms["lily"]["categories"].items()
        for keys in [("covered", "strict_recall")]
    ]
    return _rows(["presidio-research", "spans", "wholly covered", "strict recall"], rows)


def _court(document: Document) -> list[str]:
    arms = document["court"]
    rows = [
        [f"TAB dev, {kind}", str(known["entities"]), _pair(arms, "entities", kind, "recall")]
        for kind, known in arms["lily"]["entities"].items()
    ]
    rows.append(["TAB dev, character precision", "–", _pair(arms, "char_precision")])
    return _rows(["court documents", "entities", "every mention covered"], rows)


def _decisions(document: Document) -> list[str]:
    rows = [
        [
            f"harmless: {name}",
            str(arms["lily"]["texts"]),
            _pair(arms, "masked"),
            f"{arms['lily']['kept']:.3f}",
            f"{arms['lily']['asked']:.3f}",
        ]
        for name, arms in document["harmless"].items()
    ]
    known = document["implicit"]
    rows.append(["private matters, held back", str(known["private"]), "–", "–", "–"])
    rows[-1][2] = f"recall {known['recall']:.3f}"
    rows[-1][3] = f"false positives {known['false_positives']:.3f}"
    cases, total = document["cases"], document["cases"]["lily"]["cases"]
    counts = " (".join(str(arms["right"]) for arms in cases.values())
    rows.append(["known failures, right", str(total), counts + ")" * (len(cases) - 1), "–", "–"])
    return _rows(["decisions", "texts", "masked", "local or refused", "asked"], rows)


def _times(document: Document) -> list[str]:
    rows = [
        [
            f"{figure['arm']}, {figure['text']}",
            f"{figure['median']:.3g} ({figure['min']:.3g} to {figure['max']:.3g})"
            + ("" if figure["steady"] else " (!)"),
        ]
        for figure in document["figures"]
    ]
    rows.append(["sockets opened", str(document["sockets_opened"])])
    return _rows(["a whole inspection", "ms, median (min to max)"], rows)
