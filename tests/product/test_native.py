"""The product on the real native engine and the model in the package: all of it, end to end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from lily import CancelToken, Engine, SamplingParams
from lily.errors import ContextFull, InvalidInput
from lily.sampling import draw

PROMPT = "The cat sat on the"
GREEDY = {"temperature": 0, "ignore_eos": True}
LONG = [{"role": "user", "content": "Tell me about the sea. " * 40}]


@pytest.fixture(scope="module")
def lily_tiny():
    with Engine.load(max_context=1024) as engine:
        yield engine


@pytest.fixture
def session(lily_tiny):
    session = lily_tiny._native.session()
    yield session
    session.close()


def test_greedy_is_the_argmax_of_a_fresh_pass(lily_tiny, session):
    done = lily_tiny.generate(PROMPT, max_tokens=24, **GREEDY)
    tokens = lily_tiny.tokenize(PROMPT) + list(done.token_ids)
    rows = session.all_logits(tokens)
    start = len(tokens) - 24
    assert rows[start - 1 : -1].argmax(axis=1).tolist() == list(done.token_ids)
    assert done.text == lily_tiny.detokenize(done.token_ids)
    chunks = list(lily_tiny.stream(PROMPT, max_tokens=24, **GREEDY))
    assert "".join(chunk.text for chunk in chunks) == done.text
    assert chunks[-1].completion.token_ids == done.token_ids
    assert done.timings.prefill_s > 0 < done.timings.decode_s


@pytest.mark.parametrize(
    ("params", "on_device"),  # whether the device must decide at least half of the draws
    [
        ({"temperature": 0.7, "top_k": 20, "top_p": 0.8}, True),
        ({"temperature": 1.0, "top_k": 5, "min_p": 0.02}, True),
        ({"temperature": 1.3, "min_p": 0.1}, True),
        ({"temperature": 0.9, "top_p": 0.5}, False),
        ({"temperature": 1.5}, False),
        ({"temperature": 2.0, "top_k": 200, "top_p": 0.99}, False),
    ],
    ids=str,
)
def test_device_draws_are_those_of_sampling_py(lily_tiny, session, params, on_device):
    tokens = lily_tiny.tokenize(PROMPT)
    compared = 0
    for seed in range(20):
        wanted = SamplingParams(**params, seed=seed)
        session.set_sampler(
            temperature=wanted.temperature,
            top_k=wanted.top_k,
            top_p=wanted.top_p,
            min_p=wanted.min_p,
            seed=seed,
        )
        session.prefill(tokens)
        sampled = session.sampled()
        for _ in range(6):
            chosen = draw(session.logits(), wanted, session.num_tokens)
            if sampled.exact:
                assert sampled.token_id == chosen
                compared += 1
            sampled = session.step(chosen)
    assert compared >= 60 * on_device


def test_same_seed_same_text(lily_tiny):
    params = {"temperature": 1.2, "max_tokens": 20, "ignore_eos": True}
    first = lily_tiny.generate(PROMPT, seed=3, **params)
    assert lily_tiny.generate(PROMPT, seed=3, **params).token_ids == first.token_ids
    assert lily_tiny.generate(PROMPT, seed=4, **params).token_ids != first.token_ids


def test_logprobs_and_score_agree_with_the_rows(lily_tiny, session):
    done = lily_tiny.generate(PROMPT, max_tokens=8, logprobs=True, top_logprobs=20, **GREEDY)
    tokens = lily_tiny.tokenize(PROMPT) + list(done.token_ids)
    rows = session.all_logits(tokens).astype(np.float64)
    rows -= np.logaddexp.reduce(rows, axis=1, keepdims=True)
    for entry, row in zip(done.logprobs, rows[-9:-1], strict=True):
        assert entry.logprob == pytest.approx(row[entry.token_id], abs=1e-3)
        assert [top.logprob for top in entry.top] == pytest.approx(np.sort(row)[:-21:-1], abs=1e-3)
    score = lily_tiny.score(tokens)
    wanted = rows[np.arange(len(tokens) - 1), tokens[1:]]
    assert score.logprobs == pytest.approx(wanted, abs=1e-3)
    assert score.argmax == tuple(rows[:-1].argmax(axis=1).tolist())


def test_score_likes_english_better(lily_tiny):
    english = lily_tiny.score("The cat sat on the mat and looked at the dog.").perplexity
    assert english < lily_tiny.score("Mat dog the the on cat at sat The looked and.").perplexity


def test_cache_does_not_change_the_answer(lily_tiny):
    chat = lily_tiny.chat(temperature=0, max_tokens=24, enable_thinking=False)
    first, second = chat.send("What is a cat?"), chat.send("And a dog?")
    assert first.usage.cached_tokens == 0
    assert second.usage.cached_tokens == first.usage.total_tokens - 1
    with Engine.load(max_context=1024, cache_bytes=0) as fresh:
        again = fresh.generate(
            chat.messages[:-1],
            template_variables={"preserve_thinking": True},
            enable_thinking=False,
            temperature=0,
            max_tokens=24,
        )
    assert again.usage.cached_tokens == 0
    assert again.token_ids == second.token_ids


def test_concurrent_answers_equal_serial_ones(lily_tiny):
    prompts = [f"{PROMPT} {word}" for word in ("mat", "dog", "sea", "hill", "king", "moon")]
    serial = [lily_tiny.generate(p, max_tokens=16, **GREEDY).token_ids for p in prompts]
    found = [()] * len(prompts)

    def run(place):
        found[place] = lily_tiny.generate(prompts[place], max_tokens=16, **GREEDY).token_ids

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == serial


def test_cancel_and_close_of_a_stream(lily_tiny):
    token = CancelToken()
    stream = lily_tiny.stream(PROMPT, cancel=token, **GREEDY)
    next(stream)
    token.cancel()
    done = list(stream)[-1].completion
    assert done.finish_reason == "cancelled"
    assert len(done.token_ids) < 20
    stream = lily_tiny.stream(PROMPT, **GREEDY)
    next(stream)
    stream.close()
    wanted = lily_tiny.generate(PROMPT, max_tokens=9, **GREEDY)
    assert lily_tiny.score(lily_tiny.tokenize(PROMPT) + list(wanted.token_ids)).argmax[-9:] == (
        wanted.token_ids
    )


def interrupt(*_):
    os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_in_prefill(lily_tiny):
    """A real SIGINT while native code computes; the engine goes on working afterwards."""
    wanted = lily_tiny.generate(PROMPT, max_tokens=9, **GREEDY).token_ids
    with pytest.raises(KeyboardInterrupt):
        lily_tiny.generate(LONG, progress=interrupt, **GREEDY)
    assert lily_tiny.generate(PROMPT, max_tokens=9, **GREEDY).token_ids == wanted


def test_ctrl_c_in_decode(lily_tiny):
    def many():
        for _ in range(1000):
            lily_tiny.generate(PROMPT, **GREEDY)

    wanted = lily_tiny.generate(PROMPT, max_tokens=9, **GREEDY).token_ids
    threading.Timer(0.05, interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        many()
    assert lily_tiny.generate(PROMPT, max_tokens=9, **GREEDY).token_ids == wanted


def test_context_is_honest(lily_tiny):
    with pytest.raises(ContextFull, match=r"2,000 tokens.*1,024"):
        lily_tiny.generate([1] * 2000)
    done = lily_tiny.generate([1] * 1000, **GREEDY)
    assert len(done.token_ids) == 24
    assert done.finish_reason == "length"


def test_closed_engine_refuses():
    engine = Engine.load(max_context=64)
    stream = engine.stream(PROMPT, **GREEDY)
    next(stream)
    engine.close()
    with pytest.raises(InvalidInput, match="closed"):
        engine.generate(PROMPT)
    assert list(stream)[-1].completion.finish_reason == "cancelled"


def test_it_knows_what_it_is(lily_tiny):
    assert repr(lily_tiny).startswith("Engine(lily-tiny, ")
    assert lily_tiny.device in ("metal", "cuda", "cpu")
    assert lily_tiny.plan()["total_bytes"] > lily_tiny.plan()["weights_bytes"] > 0
    assert lily_tiny.cache_stats()["bytes"] >= 0


def lily(*arguments, stdin=""):
    return subprocess.run(
        [sys.executable, "-m", "lily", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_command_line(lily_tiny):
    wanted = lily_tiny.generate(PROMPT, temperature=0, max_tokens=12).text
    done = lily(
        "generate", PROMPT, "--raw", "-t", "0", "--max-tokens", "12", "--max-context", "1024"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, wanted + "\n", "")
    assert lily("generate", "", "--raw").returncode == 2
    done = lily("chat", "--max-tokens", "8", "--max-context", "1024", stdin="Hi\n/exit\n")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(lily("info", "--json").stdout)
    assert found["problems"] == []
    assert found["parameters"] > 10**6
    assert found["plans"]
    assert "lily-tiny" in lily("info").stdout
    done = lily("bench", "-l", "64", "--tokens", "8", "--rounds", "1", "--json")
    assert json.loads(done.stdout)["results"][0]["decode_tokens_per_s"] > 0


def test_ctrl_c_at_the_command_line(lily_tiny):
    prompts = [PROMPT, "Once upon a time", "The sea", "In the year"]
    greedy = {p: lily_tiny.generate(p, temperature=0, max_tokens=200) for p in prompts}
    prompt = max(prompts, key=lambda p: len(greedy[p].token_ids))
    assert len(greedy[prompt].token_ids) > 50, "no prompt here has an answer long enough to stop"
    process = subprocess.Popen(
        [sys.executable, "-m", "lily", "generate", prompt, "--raw", "-t", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
