"""docs/gate.md says what the code does: its tables are the code's, its settings are read.

``python -m tests.gate.test_docs`` writes the tables anew.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from lily.cli.gate import EXIT_CODES
from lily.gate import Category, Settings, Topic
from lily.gate.policy import effective, table
from lily.gate.settings import parse

PAGE = Path(__file__).parents[2] / "docs" / "gate.md"


def _table(head: str, rows: list[tuple[str, ...]]) -> str:
    lines = [f"| {head.replace(',', ' | ')} |", "|---" * len(rows[0]) + "|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n" + "\n".join(lines) + "\n"


def blocks() -> dict[str, str]:
    """What stands between the marks of the page."""
    rules = [(f"`{rule}`", *rest) for rule, *rest in table()]
    return {
        "policy": _table("rule,what it says,untrusted,trusted", rules),
        "effective": _table("found,untrusted,trusted", effective(Settings())),
        "categories": ", ".join(f"`{one.value}`" for one in Category),
        "topics": ", ".join(f"`{one.value}`" for one in Topic),
    }


def _between(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- {name}: begin -->)(.*?)(<!-- {name}: end -->)", re.DOTALL)


@pytest.mark.parametrize("name", blocks())
def test_tables(name):
    found = _between(name).search(PAGE.read_text("utf-8"))
    assert found[2] == blocks()[name], "python -m tests.gate.test_docs writes it anew"


def test_the_settings_of_the_page_are_read_and_complete():
    text = re.search(r"```toml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)[1]
    made = parse(text)
    plain = Settings()
    assert made.thresholds == replace(plain.thresholds, categories={Category.PERSON: 0.5})
    for name in ("max_chars", "time_budget_s", "deny_outcome"):
        assert getattr(made, name) == getattr(plain, name)
    for name in ("on_failure", "max_bytes", "keep"):
        assert getattr(made.audit, name) == getattr(plain.audit, name)
    for name in vars(plain):
        assert getattr(made, name), f"the page does not show {name}"


def test_exit_codes():
    for outcome, code in EXIT_CODES.items():
        assert f"| `{outcome}` | {code} |" in PAGE.read_text("utf-8")


if __name__ == "__main__":
    page = PAGE.read_text("utf-8")
    for block, wanted in blocks().items():
        page = _between(block).sub(lambda found, new=wanted: found[1] + new + found[3], page)
    PAGE.write_text(page, "utf-8")
