"""Answers with a form: schemas, patterns, grammars; from when on, and what ends them."""

from __future__ import annotations

import json
import re
import sys
import threading

import jsonschema
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lily import Engine, SamplingParams
from lily.errors import InvalidInput
from lily.structured import Constraint

MESSAGES = [{"role": "user", "content": "Tell me about the fox in JSON."}]
# Not the checkpoint's defaults, under which the model in the package says much the same each time.
WILD = SamplingParams(temperature=1.0)
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 30},
        "tags": {"type": "array", "items": {"enum": ["é", "🎉", "a\"b"]}, "maxItems": 3},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}  # fmt: skip
BROAD = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def lily_tiny():
    with Engine.load(max_context=1024) as engine:
        yield engine


@pytest.fixture
def say(engine, native, tokenizer):
    """Makes the model say a text and then its end token, where it may."""

    def script(text, prompt=MESSAGES):
        used = len(engine._prompt(prompt, None, None, None).token_ids)
        ids = tokenizer.encode(text, special=True)
        native.say([*ids, tokenizer.control_ids["<|im_end|>"]], used)

    return script


def valid(done, schema, limit):
    """Whether the answer is there; if it was cut, it says so."""
    if done.finish_reason == "length":
        assert len(done.token_ids) == limit
        return False
    assert done.finish_reason == "stop"
    jsonschema.validate(json.loads(done.text), schema)
    return True


# --- everything that is generated is valid ------------------------------------------------------

names = st.text('abé🎉 "\\', min_size=1, max_size=4)
leaves = st.one_of(
    st.sampled_from([
        {"type": "boolean"}, {"type": "null"}, {"type": "integer"}, {"type": "number"},
        {"type": ["string", "null"], "maxLength": 5},
        {"type": "string", "pattern": "^[a-zé]{1,4}-[0-9]+$"},
        {"type": "string", "pattern": "[xy]z"},
        {"type": "string", "minLength": 2, "maxLength": 6}, {"type": "string", "format": "date"},
        {"type": "number", "exclusiveMinimum": -1.5, "maximum": 2.25},
        {"type": "integer", "multipleOf": 7, "minimum": 0}, {"const": {"a": [1, "é"]}},
    ]),
    st.lists(names | st.integers(9, 2**53) | st.none() | st.booleans(), min_size=1, max_size=3).map(
        lambda values: {"enum": values}
    ),
    st.tuples(st.integers(-50, 50), st.integers(0, 1000)).map(
        lambda span: {"type": "integer", "minimum": span[0], "maximum": span[0] + span[1]}
    ),
)  # fmt: skip


def objects(inner):
    return st.tuples(st.dictionaries(names, inner, max_size=3), st.data()).map(
        lambda pair: {
            "type": "object", "properties": pair[0], "additionalProperties": False,
            "required": sorted(pair[0])[::2],
        }
    )  # fmt: skip


def arrays(inner):
    return st.tuples(inner, st.integers(0, 2), st.integers(0, 2)).map(
        lambda made: {
            "type": "array", "items": made[0], "minItems": made[1], "maxItems": made[1] + made[2],
        }
    )  # fmt: skip


schemas = st.recursive(
    leaves,
    lambda inner: (
        objects(inner)
        | arrays(inner)
        | st.lists(inner, min_size=1, max_size=2).map(lambda options: {"anyOf": options})
    ),
    max_leaves=5,
)


@BROAD
@given(schema=schemas, seed=st.integers(0, 2**64 - 1))
def test_the_shipped_model_keeps_to_any_schema(lily_tiny, schema, seed):
    done = lily_tiny.generate(
        MESSAGES, schema=schema, sampling=WILD, seed=seed, max_tokens=200, enable_thinking=False
    )
    valid(done, schema, 200)


@BROAD
@given(schema=schemas, seed=st.integers(0, 2**64 - 1))
def test_a_model_without_any_sense_keeps_to_any_schema(engine, schema, seed):
    """The toy's tokens are random: halves of characters, control tokens, brackets anywhere."""
    done = engine.generate("Hi", schema=schema, sampling=WILD, seed=seed, max_tokens=300)
    valid(done, schema, 300)
    again = engine.generate("Hi", schema=schema, sampling=WILD, seed=seed, max_tokens=300)
    assert again.token_ids == done.token_ids


@pytest.mark.parametrize("seed", range(5))
def test_answers_come_to_an_end(lily_tiny, engine, seed):
    for model in (lily_tiny, engine):
        for schema in (PERSON, {"type": "array", "items": {"type": "boolean"}, "maxItems": 4}):
            done = model.generate("Hi", schema=schema, sampling=WILD, seed=seed, max_tokens=400)
            assert valid(done, schema, 400)


@pytest.mark.parametrize(
    "regex", [r"[0-9]{3}-[0-9]{4}", r"(é|🎉){2,3}x?", r"\d+ (apples|pears)", r"[^\n]{1,9}\.", "a/b"]
)
def test_regex(lily_tiny, engine, regex):
    for model in (lily_tiny, engine):
        for seed in range(4):
            done = model.generate("Hi", regex=regex, sampling=WILD, seed=seed, max_tokens=60)
            assert done.finish_reason in ("stop", "length")
            assert done.finish_reason == "length" or re.fullmatch(regex, done.text)


def test_grammar(lily_tiny, engine):
    grammar = 'start: "(" start ")" | NAME\nNAME: /[a-z]{1,3}/'
    for model in (lily_tiny, engine):
        for seed in range(6):
            done = model.generate("Hi", grammar=grammar, sampling=WILD, seed=seed, max_tokens=90)
            text = done.text
            while done.finish_reason == "stop" and text.startswith("("):
                assert text.endswith(")")
                text = text[1:-1]
            assert done.finish_reason == "length" or re.fullmatch("[a-z]{1,3}", text)


def test_characters_in_pieces(engine, native, tokenizer, say):
    """Byte-level tokens that end within a character are allowed where the character is."""
    say("🎉", "Hi")
    done = engine.generate("Hi", regex="[🎉-🎋]", temperature=0)
    assert (done.text, len(done.token_ids) > 1) == ("🎉", True)
    euro = [n for n in range(tokenizer.size) if tokenizer.token_bytes(n) == b"\xff"]
    done = engine.generate("Hi", regex=".{8}", logit_bias=dict.fromkeys(euro, 50.0), seed=1)
    assert "\ufffd" not in done.text


# --- where it begins, and where it ends -----------------------------------------------------------


def test_thinking_comes_before(engine, say, tokenizer):
    """gh:lmstudio-ai/lmstudio-bug-tracker#1773, gh:scouzi1966/maclocal-api#44"""
    say('So "foxes" {.\n</think>\n\n{"name": "Fox", "age": 3}')
    chunks = list(engine.stream(MESSAGES, schema=PERSON, temperature=0))
    done = chunks[-1].completion
    assert (done.reasoning, done.text) == ('So "foxes" {.\n', '{"name": "Fox", "age": 3}')
    assert "".join(chunk.text for chunk in chunks) == done.text
    assert done.finish_reason == "stop"
    assert tokenizer.encode("\n\n")[0] in done.token_ids  # as it would without the form
    # Without the empty line too, which is no part of the answer.
    say('So.</think>{"name": "Fox", "age": 3}')
    assert engine.generate(MESSAGES, schema=PERSON, temperature=0).text == done.text


def test_an_answer_follows_even_where_the_model_would_end(engine, tokenizer, say):
    say("So.\n")
    done = engine.generate(MESSAGES, schema=PERSON, sampling=WILD, seed=3, max_tokens=400)
    assert done.reasoning == "So.\n"
    assert tokenizer.control_ids["</think>"] in done.token_ids
    assert valid(done, PERSON, 400)


@pytest.mark.parametrize("thinking", [True, False])
def test_cut_by_max_tokens_says_so(lily_tiny, thinking):
    options = {"schema": PERSON, "seed": 1, "enable_thinking": thinking}
    whole = lily_tiny.generate(MESSAGES, **options)
    for limit in (1, 3, len(whole.token_ids) - 1):
        done = lily_tiny.generate(MESSAGES, max_tokens=limit, **options)
        assert done.finish_reason == "length"
        assert whole.text.startswith(done.text)
    done = lily_tiny.generate(MESSAGES, max_tokens=len(whole.token_ids), **options)
    assert (done.text, done.finish_reason) == (whole.text, "stop")


def test_control_tokens_are_never_chosen_and_the_end_only_where_it_may_be(engine, tokenizer):
    controls = tokenizer.control_ids
    wish = {"logit_bias": dict.fromkeys(controls.values(), 60.0), "max_tokens": 300}
    for ignore_eos in (False, True):
        for seed in range(3):
            done = engine.generate(
                MESSAGES,
                schema=PERSON,
                seed=seed,
                enable_thinking=False,
                ignore_eos=ignore_eos,
                **wish,
            )
            inside = set(done.token_ids[:-1]) & set(controls.values())
            assert not inside
            assert valid(done, PERSON, 300)
    # It ends as soon as it may.
    done = engine.generate("Hi", regex="[0-9]{2,50}", seed=1, **wish)
    assert (len(done.text) <= 6, done.finish_reason) == (True, "stop")
    # And does not as long as it need not.
    done = engine.generate("Hi", regex="[0-9]{2,50}", seed=1, ignore_eos=True, **wish)
    assert (len(done.text), done.finish_reason) == (50, "stop")


def test_stop_strings_and_logprobs_work_as_ever(engine, say):
    say('{"name": "Fox", "age": 3}', "Hi")
    done = engine.generate("Hi", schema=PERSON, temperature=0, stop='", ', logprobs=True)
    assert (done.text, done.stop, done.finish_reason) == ('{"name": "Fox', '", ', "stop")
    assert len(done.logprobs) == len(done.token_ids)


def test_processors_come_before_the_mask(engine):
    rows = []

    def processor(tokens, row):
        rows.append(row)
        return row

    engine.generate("Hi", regex="[ab]c", seed=1, logits_processors=[processor])
    assert np.isfinite(rows[0]).all()
    nothing = {"logits_processors": [lambda tokens, row: np.full_like(row, -np.inf)]}
    with pytest.raises(InvalidInput, match="every token"):
        engine.generate("Hi", regex="[ab]c", seed=1, **nothing)


# --- masks beside the device ----------------------------------------------------------------------


def test_masks_are_computed_by_a_thread_of_their_own(engine, native, monkeypatch):
    compute, threads, during = Constraint._compute, set(), []
    session = native.session
    stepping = threading.Event()

    def computed(self):
        threads.add(threading.current_thread().name)
        during.append(stepping.wait(0.2))
        return compute(self)

    def made(*arguments):
        lent = session(*arguments)
        step = lent.step

        def slow(*given, **named):
            stepping.set()
            try:
                return step(*given, **named)
            finally:
                stepping.clear()

        lent.step = slow
        return lent

    native.step_s = 0.02
    monkeypatch.setattr(Constraint, "_compute", computed)
    monkeypatch.setattr(engine._pool, "_create", made)
    engine.generate("Hi", regex="[a-z]{40}", seed=1)
    assert all(name.startswith("lily-mask") for name in threads)
    assert any(during[1:])  # while the device worked
    assert not any(thread.name.startswith("lily-mask") for thread in threading.enumerate())


def test_a_closed_stream_leaves_no_thread(engine):
    stream = engine.stream("Hi", schema={"type": "string"}, seed=1)
    next(stream)
    stream.close()
    engine.stream("Hi", schema={"type": "string"}, seed=1).close()
    assert not any(thread.name.startswith("lily-mask") for thread in threading.enumerate())


# --- mistakes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"schema": {"type": "strin"}}, "schema: Invalid type: strin"),
        ({"schema": {"properties": {"a": {"items": {"type": 5}}}}}, "schema/properties/a/items: "),
        (
            {"schema": {"anyOf": [{"type": "null"}, {"type": "string", "pattern": "(("}]}},
            "schema/anyOf/1: .*group",
        ),
        ({"schema": {"$ref": "#/$defs/x"}}, "schema: .*/x"),
        ({"schema": {"type": "array", "uniqueItems": True}}, "schema: .*uniqueItems"),
        ({"schema": {"type": "integer", "minimum": 5, "maximum": 2}}, "schema: .*minimum"),
        ({"schema": {"a": {1, 2}}}, "not JSON"),
        ({"schema": {"items": {"enum": ["a", 2**53 + 1]}}}, "schema/items: .*exact"),
        ({"schema": "{}"}, "schema is str"),
        ({"regex": "a("}, "regex: .*unclosed group"),
        ({"regex": "(?=a)b"}, "regex: .*look-around"),
        ({"regex": 5}, "regex is int"),
        ({"regex": "\ud800"}, "regex cannot be encoded"),
        ({"grammar": "\ud800"}, "grammar"),
        ({"schema": {"pattern": "\ud800"}}, "schema"),
        ({"grammar": "start: other"}, "grammar: .*other"),
        ({"grammar": "begin: /a/"}, "grammar: .*start"),
        ({"grammar": 'start: <|im_start|> "a"'}, "grammar: .*unknown special token"),
        ({"regex": "a", "schema": {}}, "schema and regex"),
    ],
)
def test_mistakes_are_named_before_the_first_chunk(engine, options, said):
    with pytest.raises(InvalidInput, match=said):
        engine.stream("Hi", **options)


def test_a_grammar_cannot_ask_for_a_control_token_by_its_number(engine, tokenizer):
    number = tokenizer.control_ids["<|im_start|>"]
    with pytest.raises(InvalidInput, match="control token"):
        engine.generate("Hi", grammar=f'start: <[{number}]> "a"')


def test_without_llguidance_it_says_what_to_install(engine, monkeypatch):
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(InvalidInput, match=re.escape("lily-engine[structured]")):
        engine.stream("Hi", regex="a")
    assert engine.generate("Hi", max_tokens=2, seed=1).token_ids
