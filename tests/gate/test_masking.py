"""Placeholders and back: nothing is lost, whatever the text, however the stream is cut."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lily.gate import Category, Finding
from lily.gate.masking import Vault, mask
from lily.gate.unmask import Unmasker, unmask, unmask_json

TAG = "k3vt"
FEW = [Category.PERSON, Category.EMAIL]  # so that their first numbers are soon alive
# Pieces of placeholders among pieces of text: what could confuse a scanner.
PIECES = st.sampled_from(
    [
        *("[", "]", "\\", "_", "-", " ", "*", "`", "\n", "PERSON", "person", "EMAIL", "TEXT"),
        *("1", "1B", "2", TAG, TAG.upper(), "[PERSON_1_k3vt]", "[TEXT_1_k3vt]", "[EMAIL_1_"),
        *("\\[PERSON\\_1\\_k3vt\\]", "John", "Dorsey", "x", "\u00df", "\U0001f600", '"', "\u2028"),
    ]
)
TEXTS = st.lists(PIECES, max_size=24).map("".join)


@st.composite
def masked_texts(draw):
    """A text, findings anywhere in it, and the vault they were masked with."""
    text = draw(TEXTS)
    vault = Vault(TAG)
    findings = []
    for _ in range(draw(st.integers(0, 6)) if text else 0):
        start = draw(st.integers(0, len(text) - 1))
        end = draw(st.integers(start + 1, len(text)))
        category = draw(st.sampled_from(FEW))
        findings.append(Finding(start, end, category, draw(st.floats(0, 1)), "test"))
    return text, findings, vault


@settings(max_examples=400)
@given(masked_texts())
def test_unmask_undoes_mask(case):
    text, findings, vault = case
    done = mask(text, findings, vault)
    assert unmask(done.text, vault) == text
    for one in done.masks:
        assert done.mapping[one.placeholder] == text[one.finding.start : one.finding.end]


@settings(max_examples=400)
@given(masked_texts(), TEXTS, st.lists(st.integers(1, 9), min_size=1, max_size=60))
def test_any_chunking_gives_the_same_text(case, answer, sizes):
    text, findings, vault = case
    whole = mask(text, findings, vault).text + answer
    unmasker, given_out, place = Unmasker(vault), "", 0
    while place < len(whole):
        size = sizes[place % len(sizes)]
        given_out += unmasker.feed(whole[place : place + size])
        place += size
        # The least hold-back: never more than what could still be a placeholder.
        assert len(unmasker._held) <= 82
    assert given_out + unmasker.end() == unmask(whole, vault)


@settings(max_examples=200)
@given(masked_texts())
def test_inside_json(case):
    text, findings, vault = case
    arguments = json.dumps({"to": mask(text, findings, vault).text})
    assert json.loads(unmask_json(arguments, vault)) == {"to": text}
    unmasker = Unmasker(vault, inside_json=True)
    streamed = "".join(unmasker.feed(char) for char in arguments) + unmasker.end()
    assert json.loads(streamed) == {"to": text}


def spans(text, *values):
    """Findings of these values, as people."""
    return [
        Finding(text.index(value), text.index(value) + len(value), Category.PERSON, 0.9, "test")
        for value in values
    ]


def test_one_value_is_one_placeholder():
    vault = Vault(TAG)
    text = "Ann Vale wrote to John."
    first = mask(text, spans(text, "Ann Vale", "John"), vault).text
    assert first == "[PERSON_1_k3vt] wrote to [PERSON_2_k3vt]."
    text = "Did John answer Ann Vale?"
    again = mask(text, spans(text, "John", "Ann Vale"), vault).text
    assert again == "Did [PERSON_2_k3vt] answer [PERSON_1_k3vt]?"


def test_spellings_of_one_value_share_a_number_and_return_as_written():
    vault = Vault(TAG)
    made = [
        vault.placeholder("4111 1111 1111 1111", Category.PAYMENT_CARD),
        vault.placeholder("4111-1111-1111-1111", Category.PAYMENT_CARD),
        vault.placeholder("John", Category.PERSON),
        vault.placeholder("John Dorsey", Category.PERSON),
        vault.placeholder("JOHN DORSEY", Category.PERSON),
        vault.placeholder("John Smith", Category.PERSON),
    ]
    assert made == [
        "[PAYMENT_CARD_1_k3vt]",
        "[PAYMENT_CARD_1B_k3vt]",
        "[PERSON_1_k3vt]",
        "[PERSON_1B_k3vt]",
        "[PERSON_1C_k3vt]",
        "[PERSON_2_k3vt]",
    ]
    assert unmask(" ".join(made), vault).endswith("1111 John John Dorsey JOHN DORSEY John Smith")


def test_a_short_name_of_two_people_is_nobodys():
    vault = Vault(TAG)
    names = ("John Dorsey", "John Smith", "John")
    made = [vault.placeholder(name, Category.PERSON) for name in names]
    assert made == ["[PERSON_1_k3vt]", "[PERSON_2_k3vt]", "[PERSON_3_k3vt]"]


def test_secrets_do_not_come_back_and_are_nowhere():
    vault = Vault(TAG)
    key = "sk-" + "q7" * 10
    text = f"use {key} or {key}"
    findings = [Finding(4, 4 + len(key), Category.SECRET, 1.0, "t")]
    findings.append(Finding(len(text) - len(key), len(text), Category.SECRET, 1.0, "t"))
    done = mask(text, findings, vault)
    assert done.text == "use [SECRET_1_k3vt] or [SECRET_1_k3vt]"
    assert done.mapping == {}
    assert unmask(done.text, vault) == done.text
    assert key not in repr(vars(vault))


@pytest.mark.parametrize(
    "variant",
    [
        "[PERSON_1_k3vt]",
        "[person_1_K3VT]",
        "[ PERSON 1 k3vt ]",
        "[PERSON-1-k3vt]",
        "[**PERSON_1_k3vt**]",
        "[`PERSON_1_k3vt`]",
        "\\[PERSON\\_1\\_k3vt\\]",
        "\\[PERSON_1_k3vt\\]",
    ],
)
@pytest.mark.parametrize("before", ["Dear ", "[x", "[PERS"])
def test_what_models_make_of_a_placeholder(variant, before):
    vault = Vault(TAG)
    vault.placeholder("Ann Vale", Category.PERSON)
    assert unmask(f"{before}{variant},", vault) == f"{before}Ann Vale,"
    unmasker = Unmasker(vault)
    streamed = "".join(map(unmasker.feed, f"{before}{variant},"))
    assert streamed + unmasker.end() == f"{before}Ann Vale,"


def test_an_escape_is_held_back_behind_an_open_bracket():
    vault = Vault(TAG)
    vault.placeholder("Ann Vale", Category.PERSON)
    unmasker = Unmasker(vault)
    assert unmasker.feed("[x\\") == "[x"
    assert unmasker.feed("[PERSON_1_k3vt\\]") == "Ann Vale"


@pytest.mark.parametrize("text", ["[PERSON_1_zzzz]", "[PERSON_9_k3vt]", "PERSON_1_k3vt", "[1]"])
def test_what_is_no_live_placeholder_stays(text):
    vault = Vault(TAG)
    vault.placeholder("Ann Vale", Category.PERSON)
    assert unmask(text, vault) == text


def test_a_stream_holds_back_as_little_as_can_be():
    vault = Vault(TAG)
    vault.placeholder("Ann", Category.PERSON)
    unmasker = Unmasker(vault)
    assert unmasker.feed("see [1] and a[i") == "see [1] and a[i"
    assert unmasker.feed("] = [") == "] = "
    assert unmasker.feed("PERS") == ""
    assert unmasker.feed("IST]") == "[PERSIST]"
    assert unmasker.feed("[PERSON_1_") == ""
    assert unmasker.end() == "[PERSON_1_", "at the end it comes as it is"
    assert Unmasker(Vault()).feed("[PERSON_1_") == "[PERSON_1_", "nothing is live"


@pytest.mark.parametrize("alike", ["[PERSON_1_k3vt]", "[person 1 K3VT]", "\\[PERSON\\_1\\_k3vt\\]"])
def test_text_that_looks_like_a_live_placeholder_comes_back_as_it_was(alike):
    vault = Vault(TAG)
    text = f"{alike} is not Ann Vale"
    masked = mask(text, spans(text, "Ann Vale"), vault).text
    assert masked.endswith("[TEXT_1_k3vt] is not [PERSON_1_k3vt]")
    assert unmask(masked, vault) == text


def test_overlaps_lose_nothing():
    vault = Vault(TAG)
    text = "Ann Vale ann.vale@example.org"
    findings = [
        Finding(0, len(text), Category.PERSON, 0.6, "neural"),
        Finding(9, len(text), Category.EMAIL, 1.0, "email"),
    ]
    done = mask(text, findings, vault)
    assert done.text == "[PERSON_1_k3vt] [EMAIL_1_k3vt]"
    assert unmask(done.text, vault) == text


@pytest.mark.timeout(60)  # a second; if anything here were quadratic, hours
def test_long_texts():
    vault = Vault(TAG)
    text = " ".join(f"Name{number} Of{number % 97}" for number in range(20_000)) + "[" * 200_000
    findings = [
        Finding(*match.span(), Category.PERSON, 0.9, "t")
        for match in re.finditer(r"Name\d+ Of\d+", text)
    ]
    done = mask(text, findings, vault)
    assert len(done.masks) == 20_000
    assert unmask(done.text, vault) == text
    assert "\u2022" in vault.blanked(done.text, "\u2022")


def test_tags_differ():
    assert len({Vault().tag for _ in range(50)}) > 40
