"""What the rules know better than the reader, and what they must leave to it."""

from __future__ import annotations

import pytest
from lily.gate import Category, Finding
from lily.gate.agreement import plausible
from lily.gate.findings import Source
from lily.gate.masking import Vault, mask

UUID = "27b94442-e2a2-40dd-ab55-4384702273e4"


def guess(text: str, value: str, category: str, confidence: float = 0.9) -> Finding:
    """A finding of the reader."""
    start = text.index(value)
    end = start + len(value)
    return Finding(start, end, Category(category), confidence, "neural.x", Source.NEURAL)


def rule(text: str, value: str, category: str, confidence: float = 1.0) -> Finding:
    """A finding of the rules."""
    start = text.index(value)
    return Finding(start, start + len(value), Category(category), confidence, "rule.x")


@pytest.mark.parametrize(
    ("text", "value", "category"),
    [
        (f"id {UUID} failed", UUID, "phone"),
        ("MongoDB v4.4.2.1 installed", "4.4.2.1", "ip_address"),
        ("the gateway 192.168.0.1", "192.168.0.1", "ip_address"),
        ("mask 255.255.255.0", "255.255.255.0", "ip_address"),
        ("lodash ^4.17.21", "^4.17.21", "ip_address"),
        ("ports 5432:5432", "5432:5432", "phone"),
        ("my account number is lost", "number", "bank_account"),
        ("ssn 987-65-4325", "987-65-4325", "government_id"),
        ("device using xhci_hcd", "xhci_hcd", "secret"),
    ],
)
def test_what_has_not_the_form_is_none(text, value, category):
    assert plausible(text, [guess(text, value, category)], ()) == []


@pytest.mark.parametrize(
    ("text", "value", "category"),
    [
        ("call 020 7946 0000", "020 7946 0000", "phone"),
        ("from 8.8.4.4 today", "8.8.4.4", "ip_address"),
        ("from 252.61.9.239 today", "252.61.9.239", "ip_address"),
        ("in /srv/people/jane/notes", "jane", "username"),
        ("the password is threeblueducks", "threeblueducks", "secret"),
        ("ssn 536-90-4399", "536-90-4399", "government_id"),
        ("ask 王小明 about it", "王小明", "person"),
    ],
)
def test_what_could_be_one_stays(text, value, category):
    found = [guess(text, value, category)]
    assert plausible(text, found, ()) == found


def test_unsure_in_another_script():
    text = "カード です"
    assert plausible(text, [guess(text, "です", "person", 0.6)], ()) == []


def test_a_sure_rule_names_it_and_what_is_left_over_counts():
    text = "testdata630-596-1111"
    phone = rule(text, "630-596-1111", "phone", 0.9)
    assert plausible(text, [guess(text, text, "government_id")], [phone]) == []
    text = "4111 1111 1111 1111, 77231"
    card = rule(text, "4111 1111 1111 1111", "payment_card")
    longer = guess(text, text, "payment_card")
    assert plausible(text, [longer], [card]) == [longer], "five digits would leave"
    unsure = rule(text, "4111 1111 1111 1111", "payment_card", 0.6)
    same = guess(text, "4111 1111 1111 1111", "payment_card")
    assert plausible(text, [same], [unsure]) == [same]
    text = "bob@test.org, jo@test.org"
    both = guess(text, text, "email")
    assert plausible(text, [both], [rule(text, "bob@test.org", "email")]) == [both]


def test_a_sure_guess_is_not_validated():
    """A name that swallows an address leaves it whole; of equal spans the rule's name counts."""
    text = "Dana dana@example.org"
    name = guess(text, text, "person", 1.0)
    masks = mask(text, [name, rule(text, "dana@example.org", "email")], Vault("t")).masks
    assert [one.finding.category for one in masks] == [Category.PERSON, Category.EMAIL]
    text = "weight 120"
    found = [guess(text, "120", "age", 1.0), rule(text, "120", "health", 0.8)]
    (one,) = mask(text, found, Vault("t")).masks
    assert one.finding.category is Category.HEALTH
