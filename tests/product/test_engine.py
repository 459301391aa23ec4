"""Engine on the toy model: text, reasons to stop, sampling paths, limits, errors."""

from __future__ import annotations

import lily
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lily.engine import Engine
from lily.errors import ContextFull, InvalidInput, ModelError
from lily.sampling import SamplingParams, draw

from .fake_native import toy_logits

MESSAGES = [{"role": "user", "content": "Hi"}]
GREEDY = {"temperature": 0}


def say(native, tokenizer, engine, text, prompt="Hi", **options):
    """Script the model to answer ``text`` and then its end token; returns the token ids."""
    used = len(engine._prompt(prompt, None, None, None).token_ids)
    ids = tokenizer.encode(text, special=True)
    native.say([*ids, tokenizer.control_ids["<|im_end|>"]], used)
    return ids


def toy_greedy(prompt_ids, vocab, count):
    tokens = list(prompt_ids)
    for _ in range(count):
        tokens.append(int(toy_logits(tokens, vocab).argmax()))
    return tokens[len(prompt_ids) :]


def test_greedy_tokens_are_the_models(engine, native):
    prompt = engine.tokenize("Once upon a time")
    done = engine.generate("Once upon a time", max_tokens=20, ignore_eos=True, **GREEDY)
    assert list(done.token_ids) == toy_greedy(prompt, native.vocab_size, 20)
    assert done.text == engine.detokenize(done.token_ids)
    assert (done.finish_reason, done.stop, done.seed) == ("length", None, None)
    assert (done.usage.prompt_tokens, done.usage.completion_tokens) == (len(prompt), 20)
    assert engine.generate(prompt, max_tokens=20, ignore_eos=True, **GREEDY).text == done.text
    array = np.array(prompt, np.uint32)
    assert engine.generate(array, max_tokens=20, ignore_eos=True, **GREEDY).text == done.text


def test_answer_ends_at_the_end_token_which_is_no_text(engine, native, tokenizer):
    ids = say(native, tokenizer, engine, "Hello 🎉 there")
    done = engine.generate("Hi", **GREEDY)
    assert (done.text, done.finish_reason) == ("Hello 🎉 there", "stop")
    assert list(done.token_ids) == [*ids, tokenizer.control_ids["<|im_end|>"]]
    more = engine.generate("Hi", max_tokens=len(ids) + 4, ignore_eos=True, **GREEDY)
    assert (len(more.token_ids), more.finish_reason) == (len(ids) + 4, "length")


def test_an_end_token_that_is_a_word_is_no_text_either(engine, native):
    word = engine.tokenize("Hello")
    native.say([*word, 7], 1)
    engine._end_ids = frozenset([7])
    assert engine.generate([5], **GREEDY).text == "Hello"


def test_half_a_character_at_the_end(engine, native, tokenizer):
    (euro,) = (n for n in range(tokenizer.size) if tokenizer.token_bytes(n) == b"\xe2")
    native.say([*engine.tokenize("ab"), euro, tokenizer.control_ids["<|im_end|>"]], 1)
    assert engine.generate([5], **GREEDY).text == "ab\ufffd"
    assert "".join(chunk.text for chunk in engine.stream([5], **GREEDY)) == "ab\ufffd"


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<"), max_size=30)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=texts, stops=st.lists(st.text("ab €e", min_size=1, max_size=4), max_size=2))
def test_stream_and_generate_agree_and_cut_stops(engine, native, tokenizer, text, stops):
    text = tokenizer.decode(tokenizer.encode(text + "a b€ae"))
    say(native, tokenizer, engine, text)
    done = engine.generate("Hi", stop=stops, **GREEDY)
    chunks = list(engine.stream("Hi", stop=stops, **GREEDY))
    assert "".join(chunk.text for chunk in chunks) == done.text == chunks[-1].completion.text
    ids = [token for chunk in chunks for token in chunk.token_ids]
    assert tuple(ids) == done.token_ids
    assert text.startswith(done.text)
    assert not any(stop in done.text for stop in stops)
    assert (done.stop is not None) == any(stop in text for stop in stops)
    if done.stop is not None:
        assert text.startswith(done.text + done.stop)
    assert [chunk.finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]


def test_stop_held_back_at_the_end_is_given_out(engine, native, tokenizer):
    say(native, tokenizer, engine, "ends with STO")
    assert engine.generate("Hi", stop="STOP", **GREEDY).text == "ends with STO"


def test_thinking_is_told_apart_by_tokens(engine, native, tokenizer):
    def answer(text, **options):
        say(native, tokenizer, engine, text, MESSAGES)
        chunks = list(engine.stream(MESSAGES, **options, **GREEDY))
        done = chunks[-1].completion
        assert "".join(chunk.text for chunk in chunks) == done.text
        assert "".join(chunk.reasoning for chunk in chunks) == done.reasoning
        return done.reasoning, done.text

    assert answer("hm\n</think>\n\nyes") == ("hm\n", "yes")
    assert answer("hm</think>a<think>b</think>\nc") == ("hmb", "ac")
    assert answer("hm</think>\n\nyes<think>") == ("hm", "yes")
    assert answer("never ends") == ("never ends", "")
    # A stop string ends the answer, not the thinking.
    assert answer("a stop b</think>c stop d", stop="stop") == ("a stop b", "c ")
    # Spelled in plain text, the tag is text.
    spelled = tokenizer.encode("x</think>y")
    native.say([*spelled, *tokenizer.encode("</think>z", special=True)], native.script_from)
    done = engine.generate(MESSAGES, max_tokens=len(spelled) + 2, **GREEDY)
    assert (done.reasoning, done.text) == ("x</think>y", "z")


def test_raw_prompt_keeps_the_tags_as_text(engine, native, tokenizer):
    say(native, tokenizer, engine, "a<think>b</think>c")
    done = engine.generate("Hi", **GREEDY)
    assert (done.reasoning, done.text) == ("", "a<think>b</think>c")


def test_no_thinking(engine, native, tokenizer):
    prompt = engine._prompt(MESSAGES, None, False, None)
    native.say(
        [*tokenizer.encode("yes"), tokenizer.control_ids["<|im_end|>"]], len(prompt.token_ids)
    )
    done = engine.generate(MESSAGES, enable_thinking=False, **GREEDY)
    assert (done.reasoning, done.text) == ("", "yes")


def test_sampled_draws_are_python_draws(engine, native):
    """Exact on the device or not, with a seed the answer is the one that sampling.py defines."""
    settings_ = {"temperature": 1.1, "top_p": 0.9, "seed": 5, "max_tokens": 12, "ignore_eos": True}
    prompt = engine.tokenize("Once")
    tokens = list(prompt)
    params = SamplingParams(temperature=1.1, top_p=0.9, seed=5)
    for _ in range(12):
        tokens.append(draw(toy_logits(tokens, native.vocab_size), params, len(tokens)))
    for exact in (True, False):
        native.always_exact = exact
        done = engine.generate("Once", sampling=SamplingParams(), **settings_)
        assert list(done.token_ids) == tokens[len(prompt) :]
        assert done.seed == 5


def test_without_a_seed_the_drawn_one_is_told(engine):
    first = engine.generate("Once", temperature=1.5, max_tokens=8, ignore_eos=True)
    assert first.seed is not None
    again = engine.generate("Once", temperature=1.5, max_tokens=8, ignore_eos=True, seed=first.seed)
    assert again.token_ids == first.token_ids
    assert engine.generate("Once", temperature=1.5, max_tokens=2).seed != first.seed


def test_penalties_bias_and_processors_reach_the_draw(engine, native):
    prompt = engine.tokenize("Once")
    free = engine.generate("Once", max_tokens=1, **GREEDY).token_ids[0]
    banned = engine.generate("Once", max_tokens=1, logit_bias={free: -100}, **GREEDY)
    order = np.argsort(-toy_logits(prompt, native.vocab_size))
    assert (free, banned.token_ids[0]) == (order[0], order[1])
    seen = []

    def only_seven(ids, logits):
        seen.append(list(ids))
        masked = np.full_like(logits, -np.inf)
        masked[7] = 0
        return masked

    done = engine.generate("Once", max_tokens=3, logits_processors=[only_seven], **GREEDY)
    assert done.token_ids == (7, 7, 7)
    assert seen == [prompt, [*prompt, 7], [*prompt, 7, 7]]
    native.say([3, 3, 3], len(prompt))
    done = engine.generate("Once", max_tokens=3, frequency_penalty=15, **GREEDY)
    assert done.token_ids == (3, 3, 0)  # 20, then 20 - 15, then 20 - 30 < 0


def test_logprobs_are_the_models_own(engine, native):
    prompt = engine.tokenize("Once")
    options = {"max_tokens": 6, "logprobs": True, "top_logprobs": 3, "ignore_eos": True}
    flat = {"temperature": 50, "top_k": 0, "top_p": 1.0}  # draws beyond the 64 candidates too
    chunks = list(engine.stream("Once", seed=2, logit_bias={5: 9}, **flat, **options))
    done = chunks[-1].completion
    assert tuple(entry for chunk in chunks for entry in chunk.logprobs) == done.logprobs
    tokens = list(prompt)
    for entry, token in zip(done.logprobs, done.token_ids, strict=True):
        row = toy_logits(tokens, native.vocab_size).astype(np.float64)
        row -= np.logaddexp.reduce(row)
        assert entry.token_id == token
        assert entry.logprob == pytest.approx(row[token], abs=1e-4)
        assert [top.token_id for top in entry.top] == np.argsort(-row)[:3].tolist()
        assert [top.logprob for top in entry.top] == pytest.approx(np.sort(row)[::-1][:3], abs=1e-4)
        assert entry.text == entry.bytes.decode("utf-8", "replace")
        tokens.append(token)
    assert engine.generate("Once", max_tokens=1).logprobs is None


def test_defaults_come_from_the_checkpoint(engine):
    assert engine.defaults.temperature == 0.6
    assert engine.defaults.top_k == 20


def test_score(engine, native):
    score = engine.score("Once upon a time")
    ids = engine.tokenize("Once upon a time")
    rows = [toy_logits(ids[:n], native.vocab_size).astype(np.float64) for n in range(1, len(ids))]
    wanted = [row[t] - np.logaddexp.reduce(row) for row, t in zip(rows, ids[1:], strict=True)]
    assert score.token_ids == tuple(ids)
    # The toy sums 6,144 exponentials in float32, one after another: about 1e-4 of rounding.
    assert score.logprobs == pytest.approx(wanted, abs=1e-3)
    assert score.argmax == tuple(int(row.argmax()) for row in rows)
    assert score.perplexity == pytest.approx(np.exp(-np.mean(wanted)), rel=1e-3)
    with pytest.raises(InvalidInput, match="1 token"):
        engine.score("a")
    with pytest.raises(ContextFull, match=r"600.*512"):
        engine.score([1] * 600)


def test_context_is_honest(engine, native):
    with pytest.raises(ContextFull, match=r"600 tokens.*512"):
        engine.generate([1] * 600)
    with pytest.raises(ContextFull, match=r"512 tokens.*512"):
        engine.stream([1] * 512)
    done = engine.generate([1] * 500, max_tokens=1000, ignore_eos=True, **GREEDY)
    assert (len(done.token_ids), done.finish_reason) == (12, "length")
    assert len(engine.generate([1] * 511, ignore_eos=True, **GREEDY).token_ids) == 1


def test_cached_tokens_and_saves(engine, native):
    first = engine.generate("Once upon a time there was", max_tokens=5, ignore_eos=True, **GREEDY)
    prompt = engine.tokenize("Once upon a time there was") + list(first.token_ids) + [1]
    second = engine.generate(prompt, max_tokens=5, ignore_eos=True, **GREEDY)
    assert first.usage.cached_tokens == 0
    assert second.usage.cached_tokens == len(prompt) - 2  # the last token was never computed
    assert second.usage.total_tokens == len(prompt) + 5
    assert second.timings.prefill_tokens == 2
    assert native.sessions[0].saves == [len(prompt) - 2, len(prompt) + 4]


def test_boundaries_reach_the_session(engine, native):
    engine.generate([*MESSAGES, {"role": "assistant", "content": "a"}, *MESSAGES], max_tokens=1)
    assert len(native.sessions[0].checkpoints) == 3


def test_progress(engine):
    calls = []
    engine.generate(
        [1] * 20, max_tokens=1, progress=lambda done, total: calls.append((done, total))
    )
    assert calls == [(8, 20), (16, 20), (20, 20)]


@pytest.mark.parametrize(
    ("prompt", "options", "said"),
    [
        ("", {}, "empty"),
        ([], {}, "empty"),
        (5, {}, "int"),
        ([1, "a"], {}, "'a'"),
        ([1, 2.5], {}, "2.5"),
        ([True], {}, "True"),
        ([-1], {}, "-1"),
        ([10**6], {}, "1000000"),
        ([{"role": "user"}], {}, "no content"),
        ("Hi", {"tools": [{}]}, "need messages"),
        ("Hi", {"enable_thinking": False}, "need messages"),
        ("Hi", {"temperature": -1}, "temperature"),
        ("Hi", {"max_token": 5}, "max_token"),
        ("Hi", {"logit_bias": {10**6: 1}}, "1000000"),
    ],
)
def test_bad_calls_are_refused_before_the_first_chunk(engine, native, prompt, options, said):
    with pytest.raises(InvalidInput, match=said):
        engine.stream(prompt, **options)
    assert native.sessions == []


def test_short_repr_and_safe_html(engine, native, tokenizer):
    assert repr(engine) == "Engine(toy, 20.1 M, 4-bit, toy)"
    say(native, tokenizer, engine, "<script>alert(1)</script> & more")
    done = engine.generate("Hi", **GREEDY)
    shown = done._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in shown
    assert "tok/s" in shown
    assert str(done) == done.text
    assert len(repr(done)) < 120
    assert "stop" in repr(done)


def test_closed_engine(native, tiny_folder):
    engine = Engine(native, tiny_folder, name="toy", facts={})
    engine.generate("Hi", max_tokens=1)
    engine.close()
    assert native.closed
    assert native.sessions[0].closed
    with pytest.raises(InvalidInput, match="closed"):
        engine.generate("Hi")
    engine.close()


def test_vocabulary_mismatch(native, tiny_folder):
    native.vocab_size = 100
    with pytest.raises(ModelError, match="do not belong together"):
        Engine(native, tiny_folder, name="toy", facts={})


def test_load_checks_its_numbers():
    for name in ("max_sessions", "threads", "max_context", "memory_limit_bytes"):
        with pytest.raises(InvalidInput, match=f"{name} is 0"):
            Engine.load(**{name: 0})


def test_public_names():
    assert lily.Engine is Engine
    assert lily.SamplingParams is SamplingParams
    assert set(lily.__all__) <= set(dir(lily))
    with pytest.raises(AttributeError, match="engine2"):
        _ = lily.engine2
