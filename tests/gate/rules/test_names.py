"""Common first names: before a surname, and in lower case behind a verb of speech."""

from __future__ import annotations

import pytest

from tests.gate.rules.finding import found


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Laura Zimmer and the others came", "Laura Zimmer"),
        ("kevin mailed, then tell laura about it", "laura"),
        ("please text kevin that it rains", "kevin"),
    ],
)
def test_names(text, name):
    assert (name, "person") in found(text)


@pytest.mark.parametrize(
    "text",
    [
        "tell everyone about it",
        "text me when it rains",
        "ask support for help",
        "call art what you like",
        "Paul is a name, Default Johnson pool",
        "from chad to mali",
        "import laura.utils; kevin_count = 3",
    ],
)
def test_none(text):
    assert not [one for one in found(text) if one[1] == "person"]
