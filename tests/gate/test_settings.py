"""The settings: what is right is read, what is wrong is named, with the nearest word."""

from __future__ import annotations

import pytest
from lily.errors import InvalidInput
from lily.gate import Category, Outcome, Settings, Trust
from lily.gate.patterns import Pattern, Words
from lily.gate.settings import parse

WHOLE = """
country = "DE"
max_chars = 5000
time_budget_s = 2.5
thresholds = { mask = 0.6, unsure = 0.2 }
destinations = { "api.example.com" = "trusted", mirror = "untrusted" }

[categories]
organization = "mask"
email = { trusted = "allow", untrusted = "ask" }

[topics]
finance = "ask"

[lists]
allow = ["Lily"]
deny = ["Project Bluebird"]

[[patterns]]
name = "ticket"
pattern = "TCK-[0-9]{4}"
category = "case_number"
outcome = "local"

[audit]
file = "log/gate.jsonl"
on_failure = "warn"
"""


def test_a_whole_file(tmp_path):
    path = tmp_path / "gate.toml"
    path.write_text(WHOLE)
    made = Settings.load(path)
    assert (made.country, made.max_chars, made.time_budget_s) == ("DE", 5000, 2.5)
    assert made.thresholds.mask == 0.6
    assert made.destination("api.example.com").trust is Trust.TRUSTED
    assert made.destination("api.example.org").trust is Trust.UNTRUSTED
    assert made.destination("local").trust is Trust.LOCAL
    assert made.categories[Category.EMAIL] == {
        Trust.TRUSTED: Outcome.ALLOW,
        Trust.UNTRUSTED: Outcome.ASK,
    }
    assert made.patterns[0].outcome is Outcome.LOCAL
    assert made.audit.file == tmp_path / "log" / "gate.jsonl"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[categorys]", "categorys is not known; did you mean 'categories'?"),
        ('categories.emial = "mask"', "'emial' is not known; did you mean 'email'?"),
        (
            'categories.email = "masc"',
            "categories.email: 'masc' is not known; did you mean 'mask'?",
        ),
        ('categories.email = { trustd = "mask" }', "did you mean 'trusted'?"),
        ('categories.secret = "allow"', "it is a secret"),
        ('topics.helth = "ask"', "did you mean 'health'?"),
        ('destinations.x = "trust"', "destinations.x: 'trust' is not known"),
        ('destinations.local = "untrusted"', "destinations.local is this machine"),
        ("thresholds = { mask = 0 }", "thresholds.mask is 0, expected above 0"),
        ("thresholds = { mask = true }", "thresholds.mask is True"),
        ("thresholds = { mask = nan }", "thresholds.mask is nan"),
        ("thresholds = { mask = 0.3, unsure = 0.4 }", "expected at most thresholds.mask"),
        ("thresholds.categories.persn = 0.3", "did you mean 'person'?"),
        ("thresholds.categories.person = 3", "thresholds.categories.person is 3"),
        ("max_chars = 0", "max_chars is 0"),
        ("max_chars = true", "max_chars is True"),
        ("time_budget_s = 0", "time_budget_s is 0"),
        ('country = "Germany"', "country is 'Germany', expected two letters"),
        ('lists = { deny = ["  "] }', "empty one"),
        ('lists = { deny = "x" }', "expected a list"),
        ("lists = { dney = [] }", "did you mean 'deny'?"),
        ('patterns = [{ name = "A b", pattern = "x" }]', "no good name"),
        ('patterns = [{ name = "a" }]', "patterns[0].pattern is None"),
        ('patterns = [{ name = "a", pattern = "x*" }]', "matches the empty text"),
        ('patterns = [{ name = "a", pattern = "(x" }]', "cannot be used: missing )"),
        ('patterns = [{ name = "a", pattern = "(?=x)" }]', "cannot be used"),
        ("patterns = [{ name = 'a', pattern = '(x)\\1' }]", "cannot be used"),
        ('patterns = [{ name = "a", pattern = "x", outcom = "ask" }]', "did you mean 'outcome'?"),
        ('patterns = [{name="a", pattern="x"}, {name="a", pattern="y"}]', "two of one name"),
        ('audit = { on_failure = "allow" }', "audit.on_failure is 'allow'"),
        ("audit = { max_bytes = 1 }", "audit.max_bytes is 1"),
        ("= 3", "no TOML"),
    ],
)
def test_what_is_wrong_is_named(text, said):
    with pytest.raises(InvalidInput) as error:
        parse(text)
    assert said in str(error.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InvalidInput, match="cannot be read"):
        Settings.load(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("max_chars = 0")
    with pytest.raises(InvalidInput, match=r"bad\.toml: max_chars"):
        Settings.load(tmp_path / "bad.toml")


@pytest.mark.timeout(60)  # milliseconds; hours, if it were not linear
@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|aa)+$", "(.*a){20}b", "a*a*a*a*b", "([a-z]+)*!"])
def test_no_pattern_is_super_linear(pattern):
    """Each of these takes Python's own engine ages on some thousand characters."""
    text = "a" * 200_000
    spans = [one.span for one in Pattern("trap", pattern).find(text)]
    assert spans == ([(0, len(text))] if pattern.endswith("$") else [])


def test_offsets_are_characters():
    found = list(Pattern("p", "b+").find("\u00e4\U0001f600bb\u00e4b"))
    assert [one.span for one in found] == [(2, 4), (5, 6)]


def test_denied_words():
    words = Words(["Project Bluebird", "x-1"])
    text = "PROJECT bluebird, Pro\u200bject\nBlue\u00adbird, \uff38-1, max-1, Project Bluebirds"
    spans = [text[one.start : one.end] for one in words.find(text)]
    assert spans == ["PROJECT bluebird", "Pro\u200bject\nBlue\u00adbird", "\uff38-1"]
    assert list(Words([]).find("x")) == []
