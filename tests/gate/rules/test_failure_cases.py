"""Inputs on which public tools failed, with the right answer and the report of each.

Cases marked `names` need a reader of names and are not the rules' to decide.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.gate.rules.finding import findings

CASES = json.loads((Path(__file__).parents[1] / "data" / "failure_cases.json").read_text("utf-8"))
DECIDABLE = [case for case in CASES if not case.get("names")]
# A date alone is no identifier; whether one is masked is the policy's to say.
QUIET = ("date",)


@pytest.mark.parametrize("case", DECIDABLE, ids=lambda case: case["text"][:40])
def test_right_answer(case):
    """All of it and nothing else."""
    text = case["text"]
    got = [
        [text[each.start : each.end], each.category.value]
        for each in findings(text)
        if each.category.value not in QUIET
    ]
    assert got == case["find"], case["was"]


def test_the_table_is_whole():
    """The cases did not get lost."""
    assert len(DECIDABLE) >= 50
    assert all(case["url"].startswith("https://") for case in CASES)
