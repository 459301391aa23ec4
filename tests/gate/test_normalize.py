"""The detection copy and its views: what they show, and where their spans lead back to."""

from __future__ import annotations

import base64

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from lily.gate.normalize import normalize
from lily.gate.readings import edit

INVISIBLE = ["\u200b", "\u200d", "\u2060", "\ufeff", "\u00ad", "\u202e"]
WORDS = st.text(st.sampled_from("abcdefghijklmnopqrstuvwxyz"), min_size=2, max_size=12)


def view(text: str, name: str) -> str:
    """The text of one view."""
    return next(each.text for each in normalize(text).views if each.name == name)


@given(st.text(max_size=200))
@example("ﬁﬀ①½Ⅳ e\u0301 ａ\u3000Ａ 👩‍👩‍👧")
def test_every_character_has_its_place(text):
    """Spans of the copy and of all views lie in the original, in order, and hold something."""
    normalized = normalize(text)
    for reading in (normalized.copy, *normalized.views):
        last = 0
        for at in range(len(reading.text)):
            start, end = reading.span(at, at + 1)
            assert 0 <= start <= end <= len(text)
            assert start >= last or reading.name != "copy"
            last = start


@given(st.text(st.characters(max_codepoint=127), max_size=300))
def test_ascii_is_its_own_copy(text):
    """Nothing is folded, and every span is itself."""
    normalized = normalize(text)
    assert normalized.text == text
    for at in range(len(text)):
        assert normalized.span(at, at + 1) == (at, at + 1)


@given(WORDS, WORDS, st.lists(st.sampled_from(INVISIBLE), min_size=1, max_size=6), st.randoms())
def test_a_value_with_invisible_characters_is_found_whole(local, domain, noise, random):
    """The span of the plain value in the copy is the noisy value in the original."""
    plain = f"{local}@{domain}.com"
    places = sorted(random.sample(range(1, len(plain)), min(len(noise), len(plain) - 1)))
    noisy = plain
    for place, invisible in reversed(list(zip(places, noise, strict=False))):
        noisy = noisy[:place] + invisible + noisy[place:]
    text = f"é to {noisy} now"
    normalized = normalize(text)
    at = normalized.text.index(plain)
    start, end = normalized.span(at, at + len(plain))
    assert text[start:end] == noisy


@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.integers(0, 5), st.text("xyz", max_size=4)), max_size=8
    )
)
def test_edits_lead_back(raw):
    """Verbatim characters map to themselves, replacements to all that they replace."""
    text = "".join(chr(ord("A") + n % 26) for n in range(66))
    edits, done = [], 0
    for start, width, replacement in sorted(raw):
        if start >= done:
            edits.append((start, start + width, replacement))
            done = start + width
    edited, offsets = edit(text, edits)
    for at, character in enumerate(edited):
        start, end = offsets.source(at, at + 1)
        if character.isupper():
            assert text[start:end] == character
        else:
            assert any((start, end) == each[:2] and character in each[2] for each in edits)


@pytest.mark.parametrize(("text", "copy"), [
    ("４１１１　１２３４", "4111 1234"),
    ("١٢٣ ४५६ 𝟕𝟖", "123 456 78"),
    ("12–34—56−78", "12-34-56-78"),
    ("ｂｏｂ＠ｔｅｓｔ．ｏｒｇ", "bob@test.org"),
    ("о\u200bn e\u0301", "оn é"),
    ("аlice@ехample.com", "alice@example.com"),
    ("раураl.com/login", "paypal.com/login"),
    ("Привет, мир", "Привет, мир"),
    ("Γειά σου κόσμε", "Γειά σου κόσμε"),
    ("ﬁnance@oﬃce.org", "finance@office.org"),
    ("𝐣𝐨𝐡𝐧@example.com", "john@example.com"),
])  # fmt: skip
def test_folds(text, copy):
    """What detectors see."""
    assert normalize(text).text == copy


@pytest.mark.parametrize(("text", "name", "shows"), [
    ("bob%40test.org", "decoded1", "bob@test.org"),
    ("bob%2540test.org", "decoded2", "bob@test.org"),
    ("&#106;ohn&commat;test.org", "decoded1", "john@test.org"),
    (r"bob\u0040test.org", "decoded1", "bob@test.org"),
    ("bob@te=\nst.org", "decoded1", "bob@test.org"),
    ("a " + base64.b64encode(b"call 212-555-0147").decode() + " b", "decoded1",
    "a \ncall 212-555-0147\n b"),
    ("a " + b"bob@test.org".hex() + " b", "decoded1", "a \nbob@test.org\n b"),
    ("four one one one, one one one one", "spelled", "41111111"),
    ("uno dos tres nueve ocho siete seis", "spelled", "1239876"),
    ("triple five one two three eight nine zero", "spelled", "555123890"),
    ("j o h n @ e x a m p l e . c o m", "spelled", "john@example.com"),
    ("alice@\nexample.com", "spelled", "alice@example.com"),
    ("alice@exam\nple.com", "spelled", "alice@example.com"),
    ("card 41ll 1111 1l11 1111", "spelled", "card 4111 1111 1111 1111"),
])  # fmt: skip
def test_views(text, name, shows):
    """Other ways to read the same text."""
    assert view(text, name) == shows


@pytest.mark.parametrize("text", [
    "plain text with a number 42 and a name",
    "one two three four five six seven eight nine",
    "we met at the dot com office",
    "CamelCaseIdentifierOfSomeLength and snake_case_identifier",
    "9b74c9897bac770ffc029102a200c5de",
    "100% of 50 & more",
    "thanks\n@team for all",
    "a\nb\nc",
])  # fmt: skip
def test_plain_text_has_no_views(text):
    """Nothing is read twice that reads one way."""
    assert normalize(text).views == ()


def test_encoded_runs_map_as_a_whole():
    """What hides in base64 covers all of the run, also two deep."""
    inner = base64.b64encode(b"my mail is bob@test.org").decode()
    run = base64.b64encode(f"note: {inner}".encode()).decode()
    text = f"see {run} here"
    deep = normalize(text).views[1]
    at = deep.text.index("bob@test.org")
    start, end = deep.span(at, at + 12)
    assert text[start:end] == run


def test_table_cells_get_their_headers():
    """In CSV, TSV and markdown alike; the span of a cell is the cell."""
    for text in (
        "name,iban\nLee Park,NL91\nMia Day,NL92",
        "name\tiban\nLee Park\tNL91",
        "| name | iban |\n|---|:-:|\n| Lee Park | NL91 |",
        'name;iban\n"Lee Park";"NL91"',
    ):
        table = next(each for each in normalize(text).views if each.name == "table")
        assert "\nname: Lee Park" in table.text
        at = table.text.index("iban: NL91") + len("iban: ")
        start, end = table.span(at, at + 4)
        assert text[start:end] == "NL91"


def test_a_span_does_not_split_a_grapheme():
    """Combining marks go with their letter."""
    text = "x q\u0302\u0323 y"
    start, end = normalize(text).span(2, 3)
    assert text[start:end] == "q\u0302\u0323"


def test_an_empty_span_is_refused():
    """It has no place to lead to."""
    with pytest.raises(ValueError, match="must hold text"):
        normalize("abc").span(1, 1)
