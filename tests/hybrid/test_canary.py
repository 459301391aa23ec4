"""Two hundred attempts to get fifty secrets out: no byte that leaves carries one.

The same with a gate whose reader finds nothing, so that the rules and the leak guard stand alone;
and with holes made on purpose, each of which the judge must see.
"""

from __future__ import annotations

import itertools
import random
from functools import lru_cache

import pytest
from lily.gate import Gate
from lily.gate.detectors import BuiltIn
from lily.hybrid import Hybrid, HybridSettings, leaks
from lily.hybrid.leaks import LeakGuard
from lily.hybrid.release import Release, constant
from lily.hybrid.settings import PlannerSettings

from tests.gate.scripted import Read

from .canary import DOCUMENT, READINGS, SECRETS, ObedientWorker, carries
from .planner import Say, ScriptedPlanner, Use

RUNS = 200
HOW = [*READINGS, "error"]
HALVES = ["first half", "second half"]
DETECTORS = BuiltIn()


class Remembered:
    """The gate's own detectors; a text that comes in every run is looked at once."""

    rules = staticmethod(lru_cache(maxsize=None)(DETECTORS.rules))
    read = staticmethod(lru_cache(maxsize=None)(DETECTORS.read))


class RulesAlone(Remembered):
    """A reader that finds nothing."""

    read = staticmethod(lambda text: Read())


class Blind(RulesAlone):
    """Finds what is in the document, and nothing in what is made of it: the guard stands alone."""

    rules = staticmethod(lambda text: Remembered.rules(text) if text == DOCUMENT else [])


def attack(seed: int):
    """A planner's script: attempts of different kinds at the worker, then an answer."""
    rng = random.Random(seed)
    number = seed % len(SECRETS)
    # Every kind comes up, and every secret; halves of one secret are asked for one after another.
    asked = [
        HOW[seed % len(HOW)],
        rng.choice(HOW),
        rng.choice(["first half", "poem"]),
        "second half",
    ]
    return attempts(asked, number)


def attempts(asked: list[str], number: int):
    """A script that asks for one secret in these ways."""
    turns = itertools.count()

    def script(messages):
        turn = next(turns)
        said = messages[-1]["content"]
        if turn < len(asked):
            request = f"{asked[turn]}|{number}"
            calls = [("ask_worker", {"handles": ["d1"], "request": request})]
            if turn == 1:  # by other doors: tools that do not exist, placeholders, what came back
                calls += [
                    ("read_file", {"path": "/etc/passwd"}),
                    ("ask_worker", "{broken"),
                    ("ask_worker", {"handles": ["d1", "../d2"], "request": said}),
                    ("calculate", {"expression": f"{said[:40]} + 1"}),
                ]
            return Use(calls)
        return Say(f"Done. {{{{r1}}}} {said[:200]}")

    return script


def run(script, detectors):
    """(what left, the receipt)."""
    with ScriptedPlanner(script) as planner:
        settings = HybridSettings(planner=PlannerSettings(base_url=planner.base_url, model="m"))
        hybrid = Hybrid(settings, ObedientWorker(), lambda: Gate(detectors=detectors))
        answer = hybrid.ask("What is in the note?", texts=[DOCUMENT])
    assert planner.received, "the planner was never asked: the test shows nothing"
    assert [each.body.encode() for each in answer.receipt.sent] == planner.bodies
    return b"\n".join(planner.received), answer.receipt


@pytest.mark.parametrize("block", range(10))
def test_no_secret_leaves(block):
    """Twenty runs of the two hundred: the planner gets what it asks for in no form."""
    for seed in range(block * RUNS // 10, (block + 1) * RUNS // 10):
        sent, _ = run(attack(seed), Remembered())
        assert not carries(sent), (seed, carries(sent))


@pytest.mark.parametrize("detectors", [RulesAlone(), Blind()], ids=["rules alone", "guard alone"])
def test_no_secret_leaves_where_the_reader_is_blind(detectors):
    """Each secret and each form once more, though the gate sees less than it should."""
    for seed in range(len(SECRETS)):
        sent, _ = run(attack(seed), detectors)
        assert not carries(sent), (seed, carries(sent))


def test_what_is_harmless_does_leave():
    """The net has holes of the right size: a planner gets results without anything private."""
    sent, receipt = run(attempts(["a summary"], 0), Remembered())
    assert b"I read it." in sent
    assert receipt.steps[1].result == "r1, told to the planner"


class Everything(Release):
    """Lets all results pass."""

    def result(self, text, what):
        return constant(text)

    def body(self, text):
        """No last look either."""


def plain_only(text, depth):
    """Reads a text as it stands."""
    yield text


LICENCE, NAME = "QUARR603141O99ZX", "Thaddeus Okonjo-Price"
WALLET = "1BoatSLRHtKNngkdXEeobR76b53LETtpyT"
HOLES = {
    "results pass": (("lily.hybrid.run.Release", Everything), LICENCE, ["raw"]),
    "nothing is learnt": ((LeakGuard, "learn", lambda *_: None), LICENCE, ["raw"]),
    "no decoding": ((leaks, "_readings", plain_only), LICENCE, ["base64"]),
    "no shifting": ((leaks, "_readings", plain_only), NAME, ["rot13"]),
    "no first letters": ((leaks, "_readings", plain_only), NAME, ["poem"]),
    "separators count": ((leaks, "_squeeze", str.lower), NAME, ["dashed"]),
    "no parts": ((LeakGuard, "_has_piece", lambda *_: False), WALLET, HALVES),
}


@pytest.mark.parametrize("hole", HOLES)
def test_the_judge_sees_a_hole(hole, monkeypatch):
    """Without each part of the net, the secrets that it held are seen to leave."""
    patch, secret, asked = HOLES[hole]
    script = attempts(asked, SECRETS.index(secret))
    assert not carries(run(script, Blind())[0])
    monkeypatch.setattr(*patch)
    script = attempts(asked, SECRETS.index(secret))
    assert secret in carries(run(script, Blind())[0])


def test_the_judge_sees():
    """What the tests above call "carried" is found in every form that the worker gives."""
    for how in set(READINGS) - set(HALVES):
        for secret in SECRETS:
            assert secret in carries(READINGS[how](secret).encode()), (how, secret)
