"""Viterbi against all sequences of tags, spans, and the document's topics."""

from __future__ import annotations

import json
import math
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from lily.gate.categories import Category, Subject, Topic
from lily.gate.neural import decode, document
from lily.gate.neural.settings import Settings, read_settings
from lily.gate.neural.tokens import Tokens

from gate.neural.models import Model

LABELS = 2
TAGS = 1 + 4 * LABELS


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Of a model with two labels, with thresholds and offsets that count."""
    model = Model(labels=["person", "phone"])
    config = model.config()
    config["decode"]["thresholds"]["phone"] = 0.9
    config["document"]["thresholds"] = {"health": 0.25, "legal": 0.8, "finance": 0.5}
    folder = tmp_path_factory.mktemp("model")
    model.write(folder, decode=config["decode"], document=config["document"])
    return read_settings(folder)


def tag(kind: str, label: int = 0) -> int:
    """The number of B, I, E or S of a label."""
    return 1 + 4 * label + "BIES".index(kind)


@cache
def sentences(tokens: int) -> np.ndarray:
    """Every well-formed sequence of tags, from the grammar's own words."""

    def follows(before: int | None, after: int | None) -> bool:
        is_open = before is not None and before > 0 and (before - 1) % 4 < 2
        if after is None:
            return not is_open
        goes_on = after > 0 and (after - 1) % 4 in (1, 2)
        same = is_open and goes_on and (before - 1) // 4 == (after - 1) // 4
        return same or (not is_open and not goes_on)

    found = [
        sequence
        for sequence in product(range(TAGS), repeat=tokens)
        if all(map(follows, (None, *sequence), (*sequence, None)))
    ]
    return np.array(found)


def tags_of(runs: list[decode.Run], tokens: int) -> list[int]:
    """The tags that runs stand for."""
    tags = [0] * tokens
    for run in runs:
        if run.first == run.last:
            tags[run.first] = tag("S", run.label)
            continue
        tags[run.first : run.last + 1] = [tag("I", run.label)] * (run.last - run.first + 1)
        tags[run.first], tags[run.last] = tag("B", run.label), tag("E", run.label)
    return tags


@given(
    st.integers(1, 4).flatmap(
        lambda tokens: arrays(np.float64, (tokens, TAGS), elements=st.integers(-9, 9))
    )
)
def test_viterbi_is_the_best_sequence(logits):
    """Of all that the grammar allows; whole numbers, so that ties are common and sums exact."""
    tokens = len(logits)
    tags = tags_of(decode.viterbi(logits), tokens)
    every = sentences(tokens)
    assert (every == tags).all(1).any(), f"{tags} is not well formed"
    scores = logits[np.arange(tokens), every].sum(1)
    assert logits[np.arange(tokens), tags].sum() == scores.max()


def test_viterbi_of_a_long_text():
    """A run over 5,000 tokens, and single ones beside it."""
    logits = np.zeros((6000, TAGS))
    logits[:, 0] = 1
    logits[500:5500, tag("I", 1)] = 2
    logits[500, tag("B", 1)] = logits[5499, tag("E", 1)] = 9
    logits[7, tag("S", 0)] = 3
    assert decode.viterbi(logits) == [decode.Run(7, 7, 0), decode.Run(500, 5499, 1)]


def test_outside_wins_ties():
    """What is no better than nothing is nothing."""
    assert decode.viterbi(np.zeros((3, TAGS))) == []


def test_spans_snap_and_keep_to_thresholds(settings):
    """Whole words; a confidence is the share of the label's tags; phone wants 0.9."""
    starts, ends = np.array([0, 0, 5, 8], np.uint32), np.array([4, 4, 7, 12], np.uint32)
    tokens = Tokens(np.arange(4, dtype=np.uint32), np.zeros(4, np.uint32), starts, ends)
    logits = np.full((4, TAGS), -2.0)
    logits[:, 0] = 0
    logits[1, tag("S", 0)] = 3  # the second piece of a word of two
    logits[3, tag("S", 1)] = 1
    (found,) = decode.spans(logits, tokens, settings)
    assert (found.start, found.end, found.category) == (0, 4, Category.PERSON)
    person = math.exp(3) + 3 * math.exp(-2)
    share = person / (person + 1 + 4 * math.exp(-2))
    assert found.confidence == pytest.approx(share, rel=1e-12)
    logits[3, tag("S", 1)] = 9
    assert [each.category for each in decode.spans(logits, tokens, settings)] == [
        Category.PERSON,
        Category.PHONE,
    ]


def test_two_runs_inside_a_word_are_one(settings):
    """Both were widened to the word; the surer one speaks."""
    starts, ends = np.zeros(2, np.uint32), np.full(2, 9, np.uint32)
    tokens = Tokens(np.arange(2, dtype=np.uint32), np.zeros(2, np.uint32), starts, ends)
    logits = np.zeros((2, TAGS))
    logits[0, tag("S")], logits[1, tag("S")] = 5, 9
    (one,) = decode.spans(logits, tokens, settings)
    assert (one.start, one.end) == (0, 9)
    assert one.confidence == pytest.approx(decode.label_shares(logits)[1, 0])


def test_the_dial(settings):
    """A negative offset of O finds more, a positive one less."""
    logits = np.zeros((1, TAGS), np.float32)
    logits[0, 0], logits[0, tag("S")] = 1, 0.5
    assert decode.viterbi(decode.shifted(logits, settings, 0.0)) == []
    assert decode.viterbi(decode.shifted(logits, settings, -1.0)) == [decode.Run(0, 0, 0)]


# --- documents ----------------------------------------------------------------------------------


def logit(probability: float) -> float:
    """Of a sigmoid."""
    return math.log(probability / (1 - probability))


def window(health: float, personal: float, general: float) -> list[float]:
    """Logits of a window: only health may be there; the rest of the subject is fiction."""
    about = [math.log(each) for each in (personal, general, 1 - personal - general)]
    return [logit(health), -9.0, -9.0, *about]


def read(settings: Settings, *windows: list[float]):
    """Topics of a document."""
    return document.topics(np.array(windows, np.float32), settings)


def test_one_private_paragraph_makes_a_text_private(settings):
    """The window where topic and person meet speaks, not the one with the clearest topic."""
    (one,) = read(settings, window(0.99, 0.02, 0.97), window(0.8, 0.9, 0.05))
    assert (one.topic, one.subject) == (Topic.HEALTH, Subject.PERSONAL)
    assert one.confidence == pytest.approx(0.8, abs=0.1)


def test_general_knowledge(settings):
    """The topic stands with its own probability, about nobody."""
    (one,) = read(settings, window(0.95, 0.02, 0.9))
    assert one.subject is Subject.GENERAL
    assert (one.confidence, one.subject_confidence) == pytest.approx((0.95, 0.9), abs=1e-6)


def test_what_may_be_somebodys_is_not_called_general(settings):
    """The pair is at 0.19 where 0.25 counts: unlikely, yet worth a question."""
    (one,) = read(settings, window(0.95, 0.2, 0.75))
    assert one.subject is Subject.PERSONAL
    assert document.DOUBT < one.subject_confidence < 0.5


@given(st.floats(0.11, 0.99), st.floats(0.01, 0.98))
def test_half_is_where_the_threshold_lies(settings, health, personal):
    """health counts as personal from P(topic) * P(personal) = 0.25 on, not from 0.5 of each."""
    rest = (1 - personal) / 2
    (one,) = read(settings, window(health, personal, rest))
    counts = one.subject is Subject.PERSONAL and min(one.confidence, one.subject_confidence) >= 0.5
    if abs(health * personal - 0.25) > 1e-5:  # float32 logits
        assert counts == (health * personal > 0.25)
    assert 0 <= one.confidence <= 1
    assert 0 <= one.subject_confidence <= 1


def test_settings_are_checked(tmp_path):
    """What the reader would stumble over later is refused with the file's name."""
    good = Model(layers=1).config()
    bad: list[dict[str, object]] = [
        {"labels": ["person", "nobody"]},
        {"labels": ["person", "person"]},
        {"labels": []},
        {"subjects": ["personal"]},
        {"overlap_tokens": 14},
        {"window_tokens": "16"},
        {"decode": {}},
        {"decode": good["decode"] | {"outside_offset": float("nan")}},
        {"document": good["document"] | {"topic_temperature": 0.0}},
        {"document": good["document"] | {"thresholds": dict.fromkeys(good["topics"], 2.0)}},
    ]
    for index, change in enumerate(bad):
        folder = Model(layers=1).write(tmp_path / str(index), **change)
        with pytest.raises(ValueError, match=r"config\.json"):
            read_settings(folder)
    assert json.loads((tmp_path / "0" / "config.json").read_text())["labels"][1] == "nobody"
