"""That no input makes the rules slow: the form of every pattern, and one run on hostile texts.

Timings are no assertions here: a pattern whose cost grows faster than its input would run into the
hard limit by orders of magnitude.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import socket

import pytest
from lily.gate.normalize import normalize
from lily.gate.rules import find

from tests.gate.rules import samples as s
from tests.gate.rules.finding import found

parser = pytest.importorskip("re._parser", reason="Python's parser of patterns moved in 3.11")


def _modules():
    for name in ("agreement", "folding", "views", "spelling", "tables"):
        yield importlib.import_module(f"lily.gate.{name}")
    rules = importlib.import_module("lily.gate.rules")
    for module in pkgutil.iter_modules(rules.__path__):
        yield importlib.import_module(f"lily.gate.rules.{module.name}")


def _named_patterns():
    """Every compiled pattern of the normaliser and the rules, with its name."""
    for module in _modules():
        for name, value in vars(module).items():
            for number, each in enumerate(_inside(value)):
                yield pytest.param(each, id=f"{module.__name__.rpartition('.')[2]}.{name}.{number}")


def _inside(value):
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _inside(each)
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _inside(each)
    elif hasattr(value, "value") and isinstance(value.value, re.Pattern):  # a field
        yield value.value
    elif hasattr(value, "pattern") and isinstance(value.pattern, re.Pattern):  # a shape
        yield value.pattern


def _repeats(tree, depth=0):
    """(least, most, depth) of every repetition."""
    for op, argument in tree:
        if op in (parser.MAX_REPEAT, parser.MIN_REPEAT):
            low, high, body = argument
            yield low, high, depth
            yield from _repeats(body, depth + (high > 1))
        elif op is parser.SUBPATTERN:
            yield from _repeats(argument[3], depth)
        elif op is parser.BRANCH:
            for branch in argument[1]:
                yield from _repeats(branch, depth)
        elif op in (parser.ASSERT, parser.ASSERT_NOT):
            yield from _repeats(argument[1], depth)


@pytest.mark.parametrize("pattern", list(_named_patterns()))
def test_every_repetition_has_a_limit(pattern):
    """So that a match at one place costs at most a constant."""
    repeats = list(_repeats(parser.parse(pattern.pattern, pattern.flags)))
    assert all(high != parser.MAXREPEAT for _, high, _ in repeats), pattern.pattern
    assert all(depth <= 3 for _, _, depth in repeats), pattern.pattern


HOSTILE = [
    "a", "A", "1", "a ", "1 ", "A ", "Aa ", "Aa, ", "a.", "a@", "@a.", "-", "1-", "1.", "1:", "a=",
    "%41", "&a", "\\n", "a\n", "1\n", "(", "==",
    "a/", "0 0 ", "one ", "at ", "dot ", "4111 ", "St ", "Calle ", "1 Aa ", "rue de la ", "1 rue ",
    "Dr. Aa ", "eyJa", "key=", "password is ",
    "-----BEGIN RSA PRIVATE KEY-----", "http://a:", "abandon ", "GB82 ", "1/1 ", "|a", "\u200b",
    "e\u0301", "é", "=\n", "MRN-", "name: Aa ", "\"a\":",
]  # fmt: skip


@pytest.mark.timeout(60)
@pytest.mark.parametrize("seed", HOSTILE, ids=repr)
def test_hostile_texts_end(seed):
    """Forty thousand characters of the worst kind, and a value behind them that must be found."""
    text = (seed * 40_000)[:40_000] + f" card {s.VISA}"
    assert found(text)[-1] == (s.VISA, "payment_card")


@pytest.mark.timeout(120)
def test_a_megabyte():
    """The last value of a long text is found like the first."""
    part = "We met on the hill, and nobody spoke of numbers like 17 or 4.5 for a while. "
    text = (part * 14_000)[:1_000_000] + f" card {s.VISA}"
    assert found(text) == [(s.VISA, "payment_card")]


def test_no_socket_is_opened(monkeypatch):
    """Neither by the rules nor by the libraries behind them."""

    def refuse(*_args, **_kwargs):
        raise AssertionError("the gate opened a socket")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    text = (
        f"{s.VISA} {s.IBAN_GB} {s.DNI} +1 415 555 2671 https://a:b1@example.com x@example.org "
        f"{s.SEED}"
    )
    assert find(normalize(text))
