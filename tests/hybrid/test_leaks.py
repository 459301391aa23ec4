"""The leak guard: disguises of private words that it sees through, and texts that it lets pass."""

from __future__ import annotations

import base64
import codecs
from urllib.parse import quote

import pytest
from lily.hybrid.leaks import LeakGuard

DOCUMENT = (
    "Patient Ottoline Quarrendon, social security 536-90-4399, card 4111 1111 1111 1111, writes "
    "from ottoline@quarrendon.example. Ferritin was low in spring; she will start taking iron next "
    "week."
)
PRIVATE = [
    "Ottoline Quarrendon",
    "536-90-4399",
    "4111 1111 1111 1111",
    "ottoline@quarrendon.example",
]
DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


@pytest.fixture
def guard() -> LeakGuard:
    """Knows the document."""
    made = LeakGuard()
    made.learn(DOCUMENT, PRIVATE)
    return made


def every_other(text: str, between: str) -> str:
    """Letters with something between them."""
    return between.join(text)


DISGUISES = {
    "plain": lambda v: f"It is {v}.",
    "upper": str.upper,
    "spaced": lambda v: every_other(v, " "),
    "dashed": lambda v: every_other(v, "-"),
    "lines": lambda v: every_other(v, "\n"),
    "reversed": lambda v: v[::-1],
    "rot13": lambda v: codecs.encode(v, "rot13"),
    "base64": lambda v: base64.b64encode(v.encode()).decode(),
    "base64 of a sentence": lambda v: base64.b64encode(f"the value is {v}, ok".encode()).decode(),
    "base64 twice": lambda v: base64.b64encode(base64.b64encode(v.encode())).decode(),
    "base64 for addresses": lambda v: base64.urlsafe_b64encode(v.encode()).decode(),
    "hex": lambda v: v.encode().hex(),
    "hex in pairs": lambda v: v.encode().hex(" "),
    "binary": lambda v: " ".join(f"{byte:08b}" for byte in v.encode()),
    "codes": lambda v: ", ".join(str(byte) for byte in v.encode()),
    "percent": lambda v: "".join(f"%{byte:02x}" for byte in v.encode()),
    "quoted": lambda v: quote(v, safe=""),
    "json": lambda v: "".join(f"\\u{ord(letter):04x}" for letter in v),
    "full width": lambda v: "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in v),
    "first letters": lambda v: " ".join(f"{c}xx" for c in v if c.isalnum()),
}  # fmt: skip


@pytest.mark.parametrize("value", PRIVATE)
@pytest.mark.parametrize("disguise", DISGUISES)
def test_sees_through(guard, disguise, value):
    """Each value in each disguise, as somebody who knows it could read it out."""
    assert guard.finds(DISGUISES[disguise](value), derived=True)


@pytest.mark.parametrize("value", ["536-90-4399", "4111 1111 1111 1111"])
def test_sees_numbers_in_words(guard, value):
    """Spelled-out digits, and the last four of a long number."""
    spelled = " ".join(DIGITS[int(digit)] for digit in value if digit.isdigit())
    assert guard.finds(f"That would be {spelled}.", derived=True)
    assert guard.finds(f"It ends in {value[-4:]}", derived=True)


def test_sees_pieces(guard):
    """Half of a long word tells the other half."""
    assert guard.finds("it ends in arrendon", derived=True)
    assert not guard.finds("it ends in arrendon", derived=False)


@pytest.mark.parametrize("part", ["Ott", "oline", "536", "4-399", "enil"])
def test_sees_bare_parts(guard, part):
    """A text that is a part of a value and nothing else, however short the value."""
    assert guard.finds(part, derived=True)
    assert not guard.finds(part, derived=False)


def test_sees_the_document_itself(guard):
    """A run of its words, though none of them is peculiar."""
    assert guard.finds("ferritin was LOW in spring, she will start", derived=False)


@pytest.mark.parametrize(
    "text",
    [
        "The patient should eat more spinach and see a doctor in a month.",
        "Total: 1,284.50 in 3 invoices.",
        "Yes.",
        "42",
        "Iron was low; a supplement starts soon.",
        "",
    ],
)
def test_lets_pass(guard, text):
    """Short results without anything peculiar."""
    assert not guard.finds(text, derived=True)


@pytest.mark.parametrize(
    "text",
    [
        "the key wJalrXUtnFEMIK",
        "account ab12cd34ef",
        "serial 774193",
        "It was Lysander who came.",
        "Oyelaran came",
    ],
)
def test_knows_codes_and_names_by_their_looks(text):
    """What the gate did not find, and stands out all the same."""
    guard = LeakGuard()
    guard.learn(
        "We met Lysander Oyelaran. Serial 774193, key wJalrXUtnFEMIK, account ab12cd34ef.", []
    )
    assert guard.finds(text, derived=True)


@pytest.mark.parametrize(
    "text",
    ["It was in 2024.", "140.50 in all", "1,284.50", "a quarterly sum, a report", "We met them."],
)
def test_years_sums_and_words_are_no_codes(text):
    """They say nothing of anybody by themselves."""
    guard = LeakGuard()
    guard.learn("We met. Quarterly Report 2024, sums 140.50 and 1,284.50; this report is new.", [])
    assert not guard.finds(text, derived=True)


def test_a_series_of_short_texts(guard):
    """Each is harmless, and together they spell a value."""
    assert not guard.finds_in_series(["first 5", "then 3"])
    assert guard.finds_in_series(["first 5", "then 3", "then 6", "then 9"])
    assert guard.finds_in_series(["Otto", "line", "Quar", "rendon"])
    assert not guard.finds_in_series(["a total", "of three", "invoices"])


def test_long_numbers_stay_when_derived(guard):
    """A number that nobody wrote down may be computed from one that somebody did."""
    assert guard.finds("Twice that is 1073808798.", derived=True)
    assert not guard.finds("Twice that is 1073808798.", derived=False)


def test_permitted_words_do_not_block(guard):
    """What the user wrote himself, and the gate let go, may be repeated."""
    text = "Is Quarrendon a village?"
    assert guard.finds(text, derived=False)
    guard.permit(text)
    assert not guard.finds(text, derived=False)
    assert guard.finds("Ottoline lives there", derived=False)
