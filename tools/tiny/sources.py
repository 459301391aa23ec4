"""Turns the packaged sources (WordNet, countries, natural text) into the generators' inputs.

Owns the choice of common words and the cleaning of glosses. Reads only files that ordinary
package clients fetched (README.md names them). Knows nothing about questions or templates.

    python sources.py --wordnet DICT_DIR --countries countries.json --out generate/data/lexicon.json
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from generate import lexicon as lex

POS_FILES = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}
SENSE_POS = {"1": "n", "2": "v", "3": "a", "4": "r", "5": "a"}
POS_NAMES = {"n": "noun", "v": "verb", "a": "adjective", "r": "adverb"}
MAX_WORDS = 4200  # words taken by frequency; hand-listed words come on top
MAX_GLOSS = 16  # words in a definition: longer ones are not memorised by a model this small
CONTINENTS = {"AF": "Africa", "AS": "Asia", "EU": "Europe", "NA": "North America",
              "SA": "South America", "OC": "Oceania", "AN": "Antarctica"}  # fmt: skip
FORMER = ("Serbia and Montenegro", "Netherlands Antilles")
WITH_THE = (
    "United States", "United Kingdom", "Philippines", "Democratic Republic of the Congo",
    "Republic of the Congo", "Central African Republic", "Dominican Republic", "Netherlands",
    "United Arab Emirates", "Solomon Islands", "Bahamas", "Maldives", "Comoros", "Gambia",
)  # fmt: skip
RUDE = re.compile(
    r"\b(sex|sexual|kill|murder|rape|drug|whore|slave|nazi|negro|genital|breast|penis|vagina|"
    r"copulat|excre|urin|feces|prostitut|suicide|offensive|vulgar|slang|obscen|intercourse)",
    re.I,
)


class WordNet:
    """The parts of a WordNet 3.x dict folder that we use."""

    def __init__(self, folder: Path) -> None:
        self.synsets: dict[str, dict[str, Any]] = {}
        self.index: dict[tuple[str, str], list[str]] = {}
        self.counts: dict[tuple[str, str, int], int] = defaultdict(int)
        for pos, name in POS_FILES.items():
            self._read_data(folder / f"data.{name}", pos)
            self._read_index(folder / f"index.{name}", pos)
        for row in (folder / "cntlist.rev").read_text(encoding="latin1").splitlines():
            key, sense, count = row.split()
            lemma, rest = key.split("%")
            self.counts[lemma.replace("_", " "), SENSE_POS[rest[0]], int(sense)] += int(count)

    def _read_data(self, path: Path, pos: str) -> None:
        for row in path.read_text(encoding="latin1").splitlines():
            if row.startswith("  "):
                continue
            body, _, gloss = row.partition("|")
            p = body.split()
            n = int(p[3], 16)
            words = [re.sub(r"\(.*\)$", "", p[4 + 2 * i]).replace("_", " ") for i in range(n)]
            i = 4 + 2 * n
            pointers = [(p[i + 1 + 4 * j], p[i + 3 + 4 * j].replace("s", "a") + p[i + 2 + 4 * j])
                        for j in range(int(p[i]))]  # fmt: skip
            examples = re.findall(r'"([^"]+)"', gloss)
            text = re.split(r'; *"', gloss.strip())[0]
            self.synsets[pos + p[0]] = {
                "words": words, "gloss": text, "examples": examples, "pointers": pointers,
            }  # fmt: skip

    def _read_index(self, path: Path, pos: str) -> None:
        for row in path.read_text(encoding="latin1").splitlines():
            if not row.startswith("  "):
                p = row.split()
                offsets = [pos + x for x in p if re.fullmatch(r"\d{8}", x)]
                self.index[p[0].replace("_", " "), pos] = offsets

    def best_sense(self, word: str, order: str = "nvar") -> tuple[str, str] | None:
        """(pos, synset) of the sense that is tagged most often; nouns win ties."""
        best, score = None, -1.0
        for rank, pos in enumerate(order):
            offsets = self.index.get((word, pos), [])
            for i, key in enumerate(offsets[:3]):
                value = self.counts[word, pos, i + 1] - 0.2 * i - 0.05 * rank
                if value > score:
                    best, score = (pos, key), value
        return best

    def related(self, key: str, symbol: str) -> list[str]:
        return [t for s, t in self.synsets[key]["pointers"] if s == symbol and t in self.synsets]

    def ancestors(self, key: str) -> list[str]:
        """Hypernyms from near to far, first parent only."""
        out: list[str] = []
        while True:
            up = self.related(key, "@") or self.related(key, "@i")
            if not up or up[0] in out:
                return out
            out.append(up[0])
            key = up[0]


def clean_gloss(gloss: str) -> str | None:
    """A gloss short and plain enough to be said aloud, or None."""
    text = re.sub(r"\([^)]*\)", "", gloss)
    text = text.split(";")[0].split(":")[0].strip(" .,")
    text = re.sub(r"\s+", " ", text).replace(" ,", ",").replace("`", "'").replace("''", "'")
    count = len(text.split())
    if not 2 <= count <= MAX_GLOSS or RUDE.search(text) or not text.isascii():
        return None
    return text


def hand_words() -> set[str]:
    """Words of the generators' own lists: asked often, so always defined.

    Animals and jobs are defined by `facts.py` from the hand-written tables instead.
    """
    out = set(lex.THING_LIST) | set(lex.PLACES) | set(lex.FOODS) | set(lex.FANTASY)
    wide = [w for k in ("MORE_THINGS", "MORE_ANIMALS", "PERSONS", "NATURE") for w in lex.WORDS[k]]
    return out | set(lex.MASS_FOODS) | {w for w in wide if w.isalpha()}


def word_entries(wn: WordNet) -> list[dict[str, Any]]:
    """Common words, most frequent first, each with one clean sense."""
    totals: dict[str, int] = defaultdict(int)
    for (word, _, _), count in wn.counts.items():
        totals[word] += count
    ranked = sorted(totals, key=lambda w: (-totals[w], w))
    plain = [w for w in ranked if re.fullmatch(r"[a-z]{3,14}", w)]
    chosen = sorted(hand_words()) + plain
    seen: set[str] = set()
    out = []
    for word in chosen:
        sense = wn.best_sense(word)
        own = word in lex.ANIMALS or word in lex.JOBS
        if own or word in seen or sense is None or RUDE.search(word):
            continue
        seen.add(word)
        pos, key = sense
        gloss = clean_gloss(wn.synsets[key]["gloss"])
        if gloss is None:
            continue
        entry = describe(wn, word, pos, key, gloss)
        entry["count"] = totals.get(word, 0)
        out.append(entry)
        if len(out) >= MAX_WORDS:
            break
    return out


def describe(wn: WordNet, word: str, pos: str, key: str, gloss: str) -> dict[str, Any]:
    """What the generators may say about one word."""
    syn = wn.synsets[key]
    entry: dict[str, Any] = {"word": word, "pos": POS_NAMES[pos], "gloss": gloss}
    others = [w for w in syn["words"] if w.lower() != word and w.isascii() and " " not in w]
    if others:
        entry["like"] = others[:2]
    for text in syn["examples"][:1]:
        fits = 3 <= len(text.split()) <= 12 and word in text.lower()
        if fits and text.isascii() and not RUDE.search(text):
            entry["example"] = text
    if pos == "n":
        entry["kinds"] = [wn.synsets[k]["words"][0] for k in wn.ancestors(key)][:6]
        parts = [wn.synsets[k]["words"][0] for k in wn.related(key, "%p")]
        if parts:
            entry["parts"] = parts[:5]
    opposite = wn.related(key, "!")
    if opposite:
        entry["not"] = wn.synsets[opposite[0]]["words"][0]
    return entry


def countries(path: Path) -> list[dict[str, Any]]:
    """Name, capital, continent, currency and population of each country with a capital."""
    out = []
    for c in json.loads(path.read_text(encoding="utf-8")).values():
        if c["name"] in FORMER:
            continue
        if c["capital"] and c["population"] and c["population"] > 200_000:
            name = c["name"].removeprefix("The ")
            name = f"the {name}" if name in WITH_THE else name
            out.append({"name": name, "capital": c["capital"],
                        "continent": CONTINENTS[c["continentcode"]],
                        "currency": c["currencyname"], "people": c["population"]})  # fmt: skip
    return sorted(out, key=lambda c: -c["people"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wordnet", type=Path, required=True)
    parser.add_argument("--countries", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    data = {"words": word_entries(WordNet(args.wordnet)), "countries": countries(args.countries)}
    args.out.write_text(json.dumps(data, ensure_ascii=False, indent=0), encoding="utf-8")
    print(f"{len(data['words'])} words, {len(data['countries'])} countries")


if __name__ == "__main__":
    main()
