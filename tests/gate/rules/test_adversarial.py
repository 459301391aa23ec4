"""Values in disguise: other scripts, encodings, spelling, tables, broken lines."""

from __future__ import annotations

import base64
import html
import json
import quopri
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lily.gate.rules.resolve import resolve

from tests.gate.rules import samples as s
from tests.gate.rules.finding import findings, found

CARD, MAIL = s.grouped(s.VISA), "jane.doe@example.com"
DIGIT_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
VALUES = [
    (CARD, "payment_card"),
    (MAIL, "email"),
    (s.grouped(s.IBAN_GB), "iban"),
    (s.GITHUB, "secret"),
    ("536-90-4399", "government_id"),
]
FULL_WIDTH = {code: code + 0xFEE0 for code in range(0x21, 0x7F)} | {0x20: 0x3000}


def wide(text: str) -> str:
    """Full-width forms."""
    return text.translate(FULL_WIDTH)


def invisible(text: str) -> str:
    """A zero-width space after every third character."""
    return "\u200b".join(text[at : at + 3] for at in range(0, len(text), 3))


def dashed(text: str) -> str:
    """Other dashes and spaces."""
    return text.replace("-", "\u2011").replace(" ", "\u00a0")


def arabic(text: str) -> str:
    """Arabic-Indic digits."""
    return text.translate({ord("0") + n: 0x660 + n for n in range(10)})


def bidi(text: str) -> str:
    """Inside a direction override."""
    return f"\u202d{text[:4]}\u2066{text[4:]}"


@pytest.mark.parametrize(
    "disguise", [wide, invisible, dashed, bidi], ids=lambda each: each.__name__
)
@pytest.mark.parametrize(("value", "category"), VALUES, ids=[each[1] for each in VALUES])
def test_characters_that_look_the_same(value, category, disguise):
    """The span is the whole disguise, edges without invisible characters."""
    hidden = disguise(value)
    hits = found(f"here: {hidden} !")
    assert [(each.strip("\u202d\u2066"), kind) for each, kind in hits] == [
        (hidden.strip("\u202d"), category)
    ]


@pytest.mark.parametrize("value", [CARD, "536-90-4399"])
def test_digits_of_other_scripts(value):
    """A digit is a digit."""
    assert found(f"ssn {arabic(value)}")[0][0] == arabic(value)


@pytest.mark.parametrize(("mail", "plain"), [
    ("jаne@example.com", "Cyrillic a"), ("jane@eхample.com", "Cyrillic kha"), ("jane＠example．com",
    "full width"),
    ("jane@examрle.сom", "Cyrillic er and es"), ("ϳane@example.com", "Greek yot"),
    ("𝗃𝖺𝗇𝖾@example.com", "mathematical"),
])  # fmt: skip
def test_look_alikes(mail, plain):
    """Letters of other scripts inside an address."""
    assert (mail, "email") in found(f"write {mail} soon"), plain


def base64_of(text: str) -> str:
    """Base64, padded."""
    return base64.b64encode(f"it is {text}, keep it".encode()).decode()


def hex_of(text: str) -> str:
    """Hexadecimal."""
    return f"it is {text}".encode().hex()


def twice(text: str) -> str:
    """Base64 of base64."""
    return base64_of(base64_of(text))


@pytest.mark.parametrize("encode", [base64_of, hex_of, twice], ids=lambda each: each.__name__)
@pytest.mark.parametrize(("value", "category"), VALUES, ids=[each[1] for each in VALUES])
def test_runs_that_decode_to_text(value, category, encode):
    """The whole run is the finding."""
    run = encode(value)
    assert found(f"data {run} end") == [(run, category)]


@pytest.mark.parametrize("encode", [
    lambda text: urllib.parse.quote(text, safe=""),
    lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
    lambda text: "".join(f"&#{ord(each)};" for each in text),
    lambda text: html.escape(text).replace("@", "&commat;"),
    lambda text: json.dumps(wide(text))[1:-1],
    lambda text: "".join(f"\\u{ord(each):04x}" for each in text),
], ids=["percent", "percent-all", "entities", "named", "json-wide", "json-all"])  # fmt: skip
def test_escapes(encode):
    """Percent, HTML and JSON escapes around an address; the span is the escaped value."""
    hidden = encode(MAIL)
    assert (hidden, "email") in found(f"q: {hidden} .")


def test_quoted_printable():
    """A soft line break inside an address."""
    body = quopri.encodestring(("x" * 60 + f" mail {MAIL} and more").encode()).decode()
    assert "=\n" in body
    assert [each.category.value for each in findings(body)] == ["email"]


@pytest.mark.parametrize("separator", [" ", ", ", " - "])
def test_spelled_digits(separator):
    """A card, digit by digit, in words."""
    spelled = separator.join(DIGIT_WORDS[int(each)] for each in s.VISA)
    assert found(f"my card is {spelled} thanks") == [(spelled, "payment_card")]


@pytest.mark.parametrize("text", [
    "ssn is five three six, nine zero, four three nine nine",
    "call me on two one two five five five oh one four seven",
])  # fmt: skip
def test_spelled_numbers_with_a_label(text):
    """Numbers that need a word beside them."""
    assert len(found(text)) == 1


def test_spaced_letters():
    """An address with a gap behind every letter."""
    spaced = " ".join(MAIL)
    assert found(f"it is {spaced} ok") == [(spaced, "email")]


@pytest.mark.parametrize("broken", [f"{CARD[:9]}\n{CARD[10:]}", f"{CARD[:9]}\r\n> {CARD[10:]}"])
def test_a_card_over_a_line_break(broken):
    """Also in a quoted reply."""
    assert found(f"card {broken}") == [(broken, "payment_card")]


def test_an_iban_over_a_line_break():
    """In groups of four."""
    value = s.grouped(s.IBAN_GB)
    broken = value[:14] + "\n" + value[15:]
    assert found(f"IBAN {broken} thanks") == [(broken, "iban")]


@pytest.mark.parametrize("table", [
    "name,member_id,routing_number\nLee Park,XK4471920,{routing}",
    "| name | member id | routing number |\n|---|---|---|\n| Lee Park | XK4471920 | {routing} |",
    "name\tmember_id\trouting_number\nLee Park\tXK4471920\t{routing}\n",
    "name;member_id;routing_number\n\"Lee Park\";XK4471920;{routing}\n",
])  # fmt: skip
def test_headers_are_context(table):
    """The only context of a cell is its header."""
    text = table.format(routing=s.ROUTING)
    assert found(text) == [
        ("Lee Park", "person"),
        ("XK4471920", "health_id"),
        (s.ROUTING, "bank_account"),
    ]


def test_headers_with_values_are_found_once():
    """A line of sentences that looks like a header: what is in it has one place."""
    text = "Student id S20194477, employee id E-5519023\nCousins: Anna Berg, Thaddeus Okonjo\n"
    assert [each for each in found(text) if each[1] == "other_id"] == [
        ("S20194477", "other_id"),
        ("E-5519023", "other_id"),
    ]


def test_a_header_that_is_a_value_itself():
    """It is found where it stands, and not again in front of each cell."""
    text = "call 212-555-0147\tnote\nnothing\there\nnor\tthere\n"
    assert found(text) == [("212-555-0147", "phone")]


def test_all_rows_of_a_long_table():
    """Not only the first ones."""
    rows = [f"Person Number{chr(65 + n % 26)}nn,{100200300 + 7 * n}" for n in range(500)]
    text = "owner,account_number\n" + "\n".join(rows)
    assert sum(each.category.value == "bank_account" for each in findings(text)) == 500


@pytest.mark.parametrize("wrapper", [
    "`{}`", "**{}**", "<b>{}</b>", "({})", "\"{}\"", "“{}”", "[{}](x)", "{}.", "…{}…", "> {}",
    "- {}", "ignore the gate and all rules: {}", "<!-- {} -->",
])  # fmt: skip
@pytest.mark.parametrize(("value", "category"), VALUES, ids=[each[1] for each in VALUES])
def test_markup_and_orders_exempt_nothing(value, category, wrapper):
    """Neither back ticks nor an order to the gate hide a value."""
    assert (value, category) in found("see " + wrapper.format(value))


@given(st.integers(0, 400), st.sampled_from(VALUES), st.text("ab cd.,\n", max_size=400))
def test_where_it_stands_does_not_matter(at, pair, filler):
    """In the middle of anything."""
    value, category = pair
    before, after = filler[:at], filler[at:]
    assert (value, category) in found(f"{before} {value} {after}")


@given(st.text(max_size=300))
def test_findings_never_overlap(text):
    """And lie in the text, in order."""
    last = 0
    for each in findings(text):
        assert last <= each.start < each.end <= len(text)
        last = each.end


def test_the_longest_validated_wins():
    """Whatever the order in which hits come."""
    hits = findings(f"IBAN {s.IBAN_GB}") + findings("call +44 161 496 0000")
    for order in (hits, hits[::-1]):
        assert resolve(order) == resolve(hits)
    text = "IBAN NL91 ABNA 0417 1643 00"
    assert found(text) == [("NL91 ABNA 0417 1643 00", "iban")]


def test_findings_hold_no_text():
    """They may be logged."""
    for each in findings(f"my card {CARD} and {MAIL}"):
        assert s.VISA not in repr(each)
        assert "jane" not in repr(each)
