"""The sets of the gate's benchmark: labelled texts, prompts, and inputs on which others failed.

This file owns which part of each public set is measured (never what was trained on) and the digests
of the prompts, which somebody wrote who had not seen the training templates. Labels are those of
``tools/gate/sources.py``, whose split is used.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools" / "gate"))
import sources  # noqa: E402
from sources import Example  # noqa: E402

PROMPTS = Path(__file__).with_name("prompts")
DIGESTS = {
    "sensitive": "75ec33fecb11aeea352570db036c9b91be885296aaef807c2048d491a3478f2f",
    "benign": "04cbd449b2ae5e14d1178bb772e2e984235e57bbe0d87fac3c70f1a18548b56b",
    "code": "eeb375fba86c0472b29634ba9c44b9f0a40c5c0730da0c483e330ace67a68a36",
}
NEUTRAL = "The meeting covered the budget and the schedule of the new building. "
CASES = ROOT / "tests" / "gate" / "data" / "failure_cases.json"


def some(examples: Sequence[Any], count: int | None) -> list[Any]:
    """A fixed sample, in order."""
    if count is None or len(examples) <= count:
        return list(examples)
    return [examples[at] for at in sorted(random.Random(7).sample(range(len(examples)), count))]


def span_sets(data: Path, count: int | None) -> dict[str, list[Example]]:
    """Texts with labelled spans, by set."""
    whole = {
        "presidio_research": sources.presidio_rows(data, training=False),
        "wnut17": sources.columns(data / "wnut17/emerging.dev.conll", 0, 1),
        "btc": sources.columns(data / "btc/btc.dev", 0, 1),
        "uner": sources.columns(data / "uner/en_ewt-ud-dev.iob2", 1, 2),
        "meddocan": sources.meddocan(data, "dev"),
    }
    limits = {"meddocan": 40 if count is None else max(1, count // 10)}
    return {name: some(each, limits.get(name, count)) for name, each in whole.items()}


def court(data: Path) -> list[dict[str, Any]]:
    """The court documents of TAB's development part, as they are."""
    lines = (data / "tab/tab_train_dev.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return [row for row in rows if row["metadata"]["provenance"]["dataset_type"] == "dev"]


def harmless(data: Path, count: int | None) -> dict[str, list[str]]:
    """Texts that should pass as they are."""
    public = [one.text for one in sources.benign(data, "test")]
    return {
        "CLINC150 and Banking77": some(public, count),
        "prompts": [row["text"] for row in prompts("benign")],
        "code and logs": [row["text"] for row in prompts("code")],
    }


def prompts(name: str) -> list[dict[str, str]]:
    """A file of prompts, which must be the one that was written. Raises ValueError."""
    content = (PROMPTS / f"{name}.jsonl").read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != DIGESTS[name]:
        raise ValueError(f"{name}.jsonl: SHA-256 is {digest}, expected {DIGESTS[name]}")
    return [json.loads(line) for line in content.decode("utf-8").splitlines()]


def cases() -> list[dict[str, Any]]:
    """Inputs on which public tools failed, each behind as much neutral text as its report had."""
    rows = json.loads(CASES.read_text("utf-8"))
    for row in rows:
        count = row.get("neutral_chars_before", 0)
        row["text"] = (NEUTRAL * (count // len(NEUTRAL) + 1))[:count] + row["text"]
    return rows
