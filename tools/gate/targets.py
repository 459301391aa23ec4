"""What a token may be: weighted sets of tags, since no public set marks all that the gate marks.

A token has the id of a row of `TABLE`, a weight for every tag, 0 for what is wrong there; the loss
is minus the log of the weighted sum of probabilities. This file owns the rows. It knows no source's
labels.
"""

from __future__ import annotations

import numpy as np
from labels import LABELS, TAGS, tag

# Labels that a source leaves unmarked in its text. Outside of a span the token is O, or with
# little weight one of these: with full weight nothing keeps such a label from spreading everywhere.
UNMARKED = {
    "all": (),
    "names": tuple(
        label for label in LABELS if label not in ("person", "organization", "location", "address")
    ),
    "text": ("health", "medication", "amount", "demographic", "age", "date", "location",
             "organization", "other_id"),
    "clinical": ("health", "medication", "demographic", "age"),
    "synthetic": ("amount", "health", "medication", "demographic", "username", "other_id",
                  "organization"),
    "anything": LABELS,
}  # fmt: skip
UNMARKED_WEIGHT = 0.05
# Spans of which only this much is known: the likely label, and what else it may be.
SURE, MAYBE = 1.0, 0.2
GROUPS = {
    "place": ("location", "address"),
    "when": ("date", "date_of_birth"),
    "trait": ("demographic", "age"),
    "number": ("health_id", "government_id", "other_id"),
    "file_number": ("case_number", "other_id"),
    "quantity": ("amount", "age", "date"),
    "relation": ("demographic", "person", "age"),
    "unclear": ("other_id", "organization", "demographic", "person", "location", "date", "amount"),
}  # fmt: skip


def _row(weights: dict[int, float]) -> np.ndarray:
    row = np.zeros(TAGS, np.float32)
    for position, weight in weights.items():
        row[position] = weight
    return row


def _rows() -> tuple[np.ndarray, dict[str, int], dict[tuple[str, str], int]]:
    rows = [_row({i: SURE}) for i in range(TAGS)]
    outside: dict[str, int] = {}
    for name, labels in UNMARKED.items():
        outside[name] = len(rows)
        rest = {tag(label, place): UNMARKED_WEIGHT for label in labels for place in "BIES"}
        rows.append(_row({0: SURE} | rest))
    grouped: dict[tuple[str, str], int] = {}
    for name, labels in GROUPS.items():
        for place in "BIES":
            grouped[name, place] = len(rows)
            rest = {tag(label, place): MAYBE for label in labels[1:]}
            rows.append(_row({tag(labels[0], place): SURE} | rest))
    return np.stack(rows), outside, grouped


TABLE, OUTSIDE, _GROUPED = _rows()


def target(label: str, place: str) -> int:
    """The row for a token at `place` (one of B I E S) of a span of `label`, a label or a group."""
    return _GROUPED[label, place] if (label, place) in _GROUPED else tag(label, place)
